package schedule

// IdleTimes says why a rank was idle; the parts add up to its idle time.
type IdleTimes struct {
	Warmup     float64 // before its first compute op
	Dependency float64 // in gaps, until the input was made on another rank
	Transfer   float64 // in gaps, from there to the op's start: the input was under way
	Other      float64 // in gaps, otherwise: reductions, updates, the program itself
	Drain      float64 // after its last compute op
}

// IdleParts splits the idle time of each rank of a timeline of s, predicted or measured.
func IdleParts(s *Schedule, t *Timeline) []IdleTimes {
	made := map[Op]float64{} // end of each F, and of each I or B as I
	for i := range t.Events {
		e := &t.Events[i]
		switch o := e.Op; o.Kind {
		case Forward, BackwardInput:
			made[o] = e.End
		case Backward:
			made[op(o.Stage, BackwardInput, o.First)] = e.End
		}
	}
	start, end := t.Span()
	parts := make([]IdleTimes, t.Ranks)
	for r, events := range t.byRank() {
		part, now, first := &parts[r], start, true
		for i := range events {
			e := &events[i]
			if !e.Op.Kind.IsCompute() {
				continue
			}
			if gap := e.Start - now; gap > 0 {
				if first {
					part.Warmup = gap
				} else {
					part.split(now, e.Start, s.inputOf(e.Op), made)
				}
			}
			now, first = max(now, e.End), false
		}
		part.Drain = max(0, end-now)
	}
	return parts
}

// split divides the gap from `from` to `to` before an op whose input is made by `input`.
func (p *IdleTimes) split(from, to float64, input Op, made map[Op]float64) {
	ready, ok := made[input]
	if input.Kind == 0 || !ok {
		p.Other += to - from
		return
	}
	// Where the input was made while the rank still computed, all of the gap is its way here.
	ready = min(max(ready, from), to)
	p.Dependency += ready - from
	p.Transfer += to - ready
}

// inputOf returns the op on another rank that makes op's input; Kind 0: none.
func (s *Schedule) inputOf(o Op) Op {
	recv, _ := s.transfers(o)
	if recv.Kind == 0 {
		return Op{}
	}
	return op(recv.Send().Stage, wayOps[kinds[recv.Kind].way].made, o.First)
}
