package plan

import (
	"fmt"

	"github.com/pipetrain/pipetrain/costs"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/schedule"
)

// job is what all schedules of a plan share.
type job struct {
	spec   *jobs.Spec
	model  *model.Model
	shape  model.Shape // of a micro-batch
	optim  model.Optimizer
	states int // of the optimizer, each as large as the weights
	ops    kernels.Ops
	source costs.Source
	effort int                // of a search, as schedule.Problem.Ops
	found  *schedule.Solution // by the search, where there was one
	cuts   map[int]*cutting   // by stages; made before, read by all workers
}

// costsOf returns the op times for a schedule, which may hold its weights more than once.
func (c *cutting) costsOf(s *schedule.Schedule) costs.Costs {
	if len(s.Place) == 1 {
		return c.costs
	}
	w := c.work
	w.Copies *= len(s.Place)
	return c.source.Of(w)
}

// cutting is the model cut into some number of stages, with what follows from it.
type cutting struct {
	source costs.Source
	work   costs.Work // with one holder of each stage
	cut    []model.Range
	costs  costs.Costs
	bytes  []schedule.StageBytes
	extra  []stageExtra
}

func newJob(spec *jobs.Spec, source costs.Source, ops kernels.Ops) (*job, error) {
	m, err := model.New(spec.ModelConfig())
	if err != nil {
		return nil, err
	}
	if err := source.Fits(spec); err != nil {
		return nil, err
	}
	optim := spec.Optimizer.Rule()
	return &job{
		spec: spec, model: m, shape: m.Shape(spec.MicrobatchSize()),
		optim: optim, states: len(optim.States()), ops: ops, source: source, cuts: map[int]*cutting{},
	}, nil
}

// cutInto returns the model in so many stages, or why it cannot be cut so.
func (j *job) cutInto(stages, chunks int) (*cutting, error) {
	if c := j.cuts[stages]; c != nil {
		return c, nil
	}
	cut, err := j.model.Cut(stages)
	if err != nil {
		return nil, fmt.Errorf("%d layers are too few for %d stages", j.spec.Model.Layers, stages)
	}
	c := &cutting{source: j.source, cut: cut, work: costs.WorkOf(j.spec, j.model, cut, j.optim, chunks, 1)}
	c.costs = c.source.Of(c.work)
	c.bytes, c.extra = j.stageBytes(cut)
	j.cuts[stages] = c
	return c, nil
}

// work is what the engine would be given for a lowered schedule.
func (j *job) work(s *schedule.Schedule, c *cutting) rank.Work {
	return rank.Work{Schedule: s, Model: j.model, Cut: c.cut, Shape: j.shape, Optim: j.optim, P2Stream: j.spec.Device.P2Stream}
}
