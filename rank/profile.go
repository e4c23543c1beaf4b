package rank

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/pipetrain/pipetrain/costs"
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

// Timeline returns the step's compute ops, reductions and updates of the first replica: what Simulate predicts.
func (s StepEvents) Timeline(pipelineRank func(world int) (int, bool), ranks int) *schedule.Timeline {
	t := &schedule.Timeline{Ranks: ranks}
	for _, e := range s.Events {
		r, ok := pipelineRank(e.Rank)
		if ok && !e.Op.Kind.IsSend() && !e.Op.Kind.IsRecv() {
			ev := e.Event
			ev.Rank = r
			t.Events = append(t.Events, ev)
		}
	}
	return t
}

// samples are the ops of steps on the first replica's ranks.
func samples(steps []StepEvents, pipelineRank func(world int) (int, bool)) []costs.Sample {
	var out []costs.Sample
	for _, s := range steps {
		for _, e := range s.Events {
			if _, ok := pipelineRank(e.Rank); ok {
				out = append(out, costs.Sample{Step: s.Step, Op: e.Op, Start: e.Start, End: e.End})
			}
		}
	}
	return out
}
