package jobs

import (
	"fmt"

	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// placements lists what backward_p2 may be.
func placements() []string {
	var names []string
	for _, p := range schedule.Placements() {
		names = append(names, string(p))
	}
	return names
}

// BuildSchedule returns the job's schedule of one replica: compute ops, with
// backward-p2 placed; not lowered, but for a schedule file that has its transfers.
// With kind auto there is none before a search (see UseSchedule).
func (s *Spec) BuildSchedule() (*schedule.Schedule, error) {
	c := s.Schedule
	if c.Kind == KindAuto || c.Kind == KindFile {
		if s.custom == nil {
			return nil, fmt.Errorf("schedule.kind = %q has no schedule yet", c.Kind)
		}
		if c.BackwardP2 == string(schedule.PlaceNative) {
			return s.custom.Clone(), nil // lowered or not
		}
		return schedule.TwoBP(s.custom, schedule.Policy{Placement: schedule.Placement(c.BackwardP2), Concat: int(c.Concat)})
	}
	base, err := schedule.Build(c.Kind, schedule.Config{Ranks: s.Parallel.Stages, Microbatches: c.Microbatches, Chunks: c.Chunks})
	if err != nil {
		return nil, err
	}
	return schedule.TwoBP(base, schedule.Policy{Placement: schedule.Placement(c.BackwardP2), Concat: int(c.Concat)})
}

// ModelConfig returns the network with the type that its layers compute in.
func (s *Spec) ModelConfig() model.Config {
	c := s.Model
	c.Type = model.TypeOf(s.Train.Precision)
	return c
}

// World returns the number of ranks of the job.
func (s *Spec) World() int { return s.Parallel.Stages * s.Parallel.Replicas * s.Parallel.Tensor }

// MicrobatchSize returns the sequences of one micro-batch.
func (s *Spec) MicrobatchSize() int {
	return s.Train.Batch / (s.Parallel.Replicas * s.Schedule.Microbatches)
}
