package schedule

import (
	"fmt"
	"slices"
)

// Pass makes a new schedule from one, or says why it cannot.
type Pass func(*Schedule) (*Schedule, error)

// Passes runs passes one after another.
func Passes(list ...Pass) Pass {
	return func(s *Schedule) (*Schedule, error) {
		var err error
		for _, pass := range list {
			if s, err = pass(s); err != nil {
				return nil, err
			}
		}
		return s, nil
	}
}

// addOps are the passes of Lower.
var addOps = Passes(AddTransfers, AddReduceGrad, Pace)

// Lower returns s with its transfers and reductions, checked before and after:
// what the engine performs. A RECV stands right before the op that needs the
// tensor, a SEND right after the op that made it, a WAIT where Pace places it; between stages of one rank
// nothing is sent. REDUCE_GRAD of a stage comes after its last weight gradient.
func Lower(s *Schedule) (*Schedule, error) {
	if s.Lowered {
		return nil, fmt.Errorf("lowering schedule %s: it is lowered already", s.Name)
	}
	return checked(s)
}

// AddTransfers adds SEND_F, RECV_F, SEND_B and RECV_B to a checked schedule; the WAITs are Pace's.
func AddTransfers(s *Schedule) (*Schedule, error) {
	out := s.Clone()
	for r, program := range s.Programs {
		lowered := make([]Op, 0, 3*len(program))
		for _, o := range program {
			recv, send := s.transfers(o)
			if recv.Kind != 0 {
				lowered = append(lowered, recv)
			}
			lowered = append(lowered, o)
			if send.Kind != 0 {
				lowered = append(lowered, send)
			}
		}
		out.Programs[r] = slices.Clip(lowered)
	}
	out.Lowered = true
	return out, nil
}

// transfers returns the receive that a compute op needs before it and the send
// that follows it; Kind 0 where there is none.
func (s *Schedule) transfers(o Op) (recv, send Op) {
	k := &kinds[o.Kind]
	if k.recv == 0 {
		return
	}
	here := s.RankOf(o.Stage, o.First)
	recv, send = op(o.Stage, k.recv, o.First), op(o.Stage, k.send, o.First)
	elsewhere := func(stage int) bool {
		return stage >= 0 && stage < s.Stages && s.RankOf(stage, o.First) != here
	}
	if !elsewhere(recv.Send().Stage) {
		recv = Op{}
	}
	if !elsewhere(send.Recv().Stage) {
		send = Op{}
	}
	return recv, send
}

// AddReduceGrad adds REDUCE_GRAD of each stage after its last W or B. Where a
// stage has two ranks (bidirectional schedules), its reduction is between those
// too, and all reductions go to the end in order of stages: ranks that share
// several stages then meet in the same order. Asynchronous schedules reduce with each Update.
func AddReduceGrad(s *Schedule) (*Schedule, error) {
	out := s.Clone()
	if s.Async != nil {
		return out, nil
	}
	for r, program := range s.Programs {
		if len(s.Place) > 1 {
			for _, stage := range s.StagesOf(r) {
				out.Programs[r] = append(out.Programs[r], Op{Stage: stage, Kind: ReduceGrad})
			}
			continue
		}
		last := map[int]int{} // stage → index of its last weight gradient
		for i, o := range program {
			if o.Kind == BackwardWeight || o.Kind == Backward {
				last[o.Stage] = i
			}
		}
		reduced := make([]Op, 0, len(program)+len(last))
		var due []Op
		for i, o := range program {
			// A fused backward's send comes first: another rank waits for it.
			if !o.Kind.IsSend() {
				reduced, due = append(reduced, due...), due[:0]
			}
			reduced = append(reduced, o)
			if at, ok := last[o.Stage]; ok && at == i {
				due = append(due, Op{Stage: o.Stage, Kind: ReduceGrad})
			}
		}
		out.Programs[r] = append(reduced, due...)
	}
	return out, nil
}
