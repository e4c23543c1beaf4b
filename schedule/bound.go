package schedule

import "math"

// LowerBound returns a makespan that no order of the ops can beat when stages are
// on ranks as s.Place says, whatever the memory. It is the largest of, for each rank:
//
//   - its work, after the first micro-batch can have reached it, where before the
//     first gradient can have reached it only forwards count;
//   - its F and I, after the first micro-batch can have reached it, then the way of the
//     last gradient to stage 0 and that stage's W;
//
// and of the way of one micro-batch there and back, where W joins as many
// micro-batches, and backwards are fused or split, as is cheapest. The programs of s are not looked at.
func LowerBound(s *Schedule, costs Costs) float64 {
	type rankBound struct{ head, gradient, tail, forward, both, work float64 }
	ranks := make([]rankBound, s.Ranks)
	for r := range ranks {
		ranks[r] = rankBound{head: math.Inf(1), gradient: math.Inf(1), tail: math.Inf(1)}
	}
	bound := 0.0
	for d, place := range s.Place {
		n := 0 // micro-batches of this direction
		for k := range s.Microbatches {
			if s.Direction == nil || int(s.Direction[k]) == d {
				n++
			}
		}
		if n == 0 {
			continue
		}
		table := stageCosts(s, costs, d)
		way := wayThrough(table)
		bound = max(bound, way.total)
		for stage, r := range place {
			c, b := table[stage], &ranks[r]
			b.head = min(b.head, way.forward[stage])
			b.gradient = min(b.gradient, way.backward[stage])
			b.tail = min(b.tail, way.tail[stage])
			weights := min(float64(n)*c.w, costs.Compute(Op{Stage: stage, Kind: BackwardWeight, First: 0, Last: n - 1}))
			b.forward += float64(n) * c.f
			b.both += float64(n) * (c.f + min(c.i, c.b))
			b.work += float64(n)*c.f + min(float64(n)*c.b, float64(n)*c.i+weights)
		}
	}
	for _, b := range ranks {
		if b.forward > 0 || b.work > 0 {
			early := min(b.forward, b.gradient-b.head)
			bound = max(bound, b.head+b.work, b.gradient+b.work-early, b.head+b.both+b.tail)
		}
	}
	return bound
}

// oneWay is the path of one micro-batch alone, by stage.
type oneWay struct {
	forward, backward []float64 // when F, I could start
	tail              []float64 // from the end of I to the end of the step
	total             float64
}

func wayThrough(table []stageCost) oneWay {
	n := len(table)
	w := oneWay{make([]float64, n), make([]float64, n), make([]float64, n), 0}
	t := 0.0
	for stage, c := range table {
		w.forward[stage] = t
		t += c.f + c.sendF
	}
	for stage := n - 1; stage >= 0; stage-- {
		w.backward[stage] = t
		t += min(table[stage].i, table[stage].b) + table[stage].sendB
	}
	// After the last I of stage 0 its W is left, or what a fused backward has beyond I.
	// Joined to others, the W may cost nothing of its own.
	for stage := 1; stage < n; stage++ {
		w.tail[stage] = table[stage].sendB + min(table[stage-1].i, table[stage-1].b) + w.tail[stage-1]
	}
	w.total = t
	return w
}
