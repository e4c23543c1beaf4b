package rank

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/pipetrain/pipetrain/schedule"
)

// wireEvent is an opEvent as ranks send it, times on rank 0's clock.
type wireEvent struct {
	Step       int32
	Stage      int32
	First      int32
	Last       int32
	Kind       uint8
	Category   uint8
	_          [6]byte
	Start, End int64
}

var categories = []string{"compute", "wait", "transfer", "reduce", "optimizer"}

// StepEvents are the ops of one step on all ranks, by rank.
type StepEvents struct {
	Step   int
	Events []RankEvent
}

// RankEvent is an op performed by a world rank, in seconds since the step's first op.
type RankEvent struct {
	schedule.Event
	Category string
}

// recorder keeps the ops of some steps of this rank.
type recorder struct {
	keep int // newest steps kept
	wire []wireEvent
	from []int // start of each step's events in wire
}

func (r *recorder) add(step int, events []opEvent, offset int64) {
	if len(r.from) == r.keep {
		cut := len(r.wire)
		if len(r.from) > 1 {
			cut = r.from[1]
		}
		r.wire = append(r.wire[:0], r.wire[cut:]...)
		r.from = r.from[1:]
		for i := range r.from {
			r.from[i] -= cut
		}
	}
	r.from = append(r.from, len(r.wire))
	for _, e := range events {
		r.wire = append(r.wire, wireEvent{
			Step: int32(step), Stage: int32(e.op.Stage), First: int32(e.op.First), Last: int32(e.op.Last),
			Kind: uint8(e.op.Kind), Category: uint8(slices.Index(categories, e.category)),
			Start: e.start + offset, End: e.end + offset,
		})
	}
}

// gather brings the recorded ops of all ranks to rank 0, as steps.
func (tr *Trainer) gather(ctx context.Context, r *recorder) ([]StepEvents, error) {
	var buf bytes.Buffer
	if err := binary.Write(&buf, binary.LittleEndian, r.wire); err != nil {
		return nil, err
	}
	all, err := tr.world.Gather(ctx, 0, buf.Bytes())
	if err != nil || all == nil {
		return nil, err
	}
	bySteps := map[int][]wireEvent{}
	ranks := map[int][]int{}
	for rank, b := range all {
		wire := make([]wireEvent, len(b)/binary.Size(wireEvent{}))
		if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, wire); err != nil {
			return nil, fmt.Errorf("ops of rank %d: %w", rank, err)
		}
		for _, e := range wire {
			bySteps[int(e.Step)] = append(bySteps[int(e.Step)], e)
			ranks[int(e.Step)] = append(ranks[int(e.Step)], rank)
		}
	}
	var out []StepEvents
	for step, wire := range bySteps {
		origin := wire[0].Start
		for _, e := range wire {
			origin = min(origin, e.Start)
		}
		se := StepEvents{Step: step}
		for i, e := range wire {
			se.Events = append(se.Events, RankEvent{
				Event: schedule.Event{
					Rank:  ranks[step][i],
					Op:    schedule.Op{Stage: int(e.Stage), Kind: schedule.Kind(e.Kind), First: int(e.First), Last: int(e.Last)},
					Start: float64(e.Start-origin) * 1e-9, End: float64(e.End-origin) * 1e-9,
				},
				Category: categories[e.Category],
			})
		}
		out = append(out, se)
	}
	slices.SortFunc(out, func(a, b StepEvents) int { return a.Step - b.Step })
	return out, nil
}

// Timeline returns the step's compute ops, and updates within it, of the first replica: what Simulate predicts.
func (s StepEvents) Timeline(pipelineRank func(world int) (int, bool), ranks int) *schedule.Timeline {
	t := &schedule.Timeline{Ranks: ranks}
	for _, e := range s.Events {
		r, ok := pipelineRank(e.Rank)
		if ok && (e.Op.Kind.IsCompute() || e.Op.Kind == schedule.Update) {
			ev := e.Event
			ev.Rank = r
			t.Events = append(t.Events, ev)
		}
	}
	return t
}

// measuredCosts are the median times of the ops of a few steps: the profile
// from which the rest of the run is predicted.
type measuredCosts struct {
	compute  map[costKey]float64
	transfer map[costKey]float64
}

type costKey struct {
	stage, n int
	kind     schedule.Kind
}

func keyOf(op schedule.Op) costKey { return costKey{op.Stage, op.Microbatches(), op.Kind} }

// costsOf reads costs off measured steps. A transfer takes from the moment when
// both sides are ready until the receiver has it; where the receiver never
// waited, what it paid is what counts. Only the first replica's ops are read.
func costsOf(steps []StepEvents, pipelineRank func(world int) (int, bool)) measuredCosts {
	c := measuredCosts{map[costKey]float64{}, map[costKey]float64{}}
	compute, transfer := map[costKey][]float64{}, map[costKey][]float64{}
	for _, s := range steps {
		sent := map[schedule.Op]float64{}
		for _, e := range s.Events {
			if _, ok := pipelineRank(e.Rank); ok && e.Op.Kind.IsSend() {
				sent[e.Op] = e.Start
			}
		}
		for _, e := range s.Events {
			if _, ok := pipelineRank(e.Rank); !ok {
				continue
			}
			switch {
			case e.Op.Kind.IsCompute() || e.Op.Kind == schedule.ReduceGrad || e.Op.Kind == schedule.Update:
				compute[keyOf(e.Op)] = append(compute[keyOf(e.Op)], e.End-e.Start)
			case e.Op.Kind.IsRecv():
				send := sendOf(e.Op)
				if at, ok := sent[send]; ok {
					transfer[keyOf(send)] = append(transfer[keyOf(send)], max(0, e.End-max(e.Start, at)))
				}
			}
		}
	}
	for k, v := range compute {
		c.compute[k] = median(v)
	}
	for k, v := range transfer {
		k.n = 1
		c.transfer[k] = median(v)
	}
	return c
}

// Compute implements schedule.Costs.
func (c measuredCosts) Compute(op schedule.Op) float64 { return c.compute[keyOf(op)] }

// Transfer implements schedule.Costs.
func (c measuredCosts) Transfer(send schedule.Op, _, _ int) float64 {
	return c.transfer[costKey{send.Stage, 1, send.Kind}]
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	if len(x)%2 == 1 {
		return x[len(x)/2]
	}
	return (x[len(x)/2-1] + x[len(x)/2]) / 2
}
