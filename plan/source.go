package plan

import (
	"fmt"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/schedule"
)

// Source is where op times come from: Units, a Device, a *Profile or a Linked one.
type Source interface {
	// String says it in a line of the plan.
	String() string
	// unit is what times are given in: "s", or "units".
	unit() string
	// costs returns the times of the job's model cut so, with `chunks` stages a rank.
	costs(j *job, cut []model.Range, chunks int) costs
}

// costs are op times and those of the optimizer's step of a stage.
type costs interface {
	schedule.Costs
	stageUpdate(stage int) float64
}

// job is what all schedules of a plan share.
type job struct {
	spec   *jobs.Spec
	model  *model.Model
	shape  model.Shape // of a micro-batch
	optim  model.Optimizer
	states int // of the optimizer, each as large as the weights
	ops    kernels.Ops
	source Source
	found  *schedule.Solution // by the search, where there was one
	cuts   map[int]*cutting   // by stages; made before, read by all workers
}

// holderCosts are costs that know what a reduction takes when several ranks of a replica hold a stage.
type holderCosts interface {
	costs
	withHolders(n int) costs
}

// costsOf returns the op times for a schedule, which may hold its weights more than once.
func (c *cutting) costsOf(s *schedule.Schedule) costs {
	if h, ok := c.costs.(holderCosts); ok && len(s.Place) > 1 {
		return h.withHolders(len(s.Place))
	}
	return c.costs
}

// cutting is the model cut into some number of stages, with what follows from it.
type cutting struct {
	cut   []model.Range
	costs costs
	bytes []schedule.StageBytes
	extra []stageExtra
}

func newJob(spec *jobs.Spec, source Source, ops kernels.Ops) (*job, error) {
	m, err := model.New(spec.ModelConfig())
	if err != nil {
		return nil, err
	}
	if p, ok := source.(interface{ Fits(*jobs.Spec) error }); ok { // measured on some model
		if err := p.Fits(spec); err != nil {
			return nil, err
		}
	}
	o := spec.Optimizer
	optim := model.Optimizer{Kind: o.Kind, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Momentum: o.Momentum, WeightDecay: o.WeightDecay}
	return &job{
		spec: spec, model: m, shape: model.Shape{Batch: spec.MicrobatchSize(), Seq: spec.Model.Seq},
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
	c := &cutting{cut: cut, costs: j.source.costs(j, cut, chunks)}
	c.bytes, c.extra = j.stageBytes(cut)
	j.cuts[stages] = c
	return c, nil
}

// work is what the engine would be given for a lowered schedule.
func (j *job) work(s *schedule.Schedule, c *cutting) rank.Work {
	return rank.Work{Schedule: s, Model: j.model, Cut: c.cut, Shape: j.shape, Optim: j.optim, P2Stream: j.spec.Device.P2Stream}
}

// unitCosts are Units for stages of one size.
type unitCosts struct{ schedule.StageCosts }

func (c unitCosts) stageUpdate(int) float64 { return c.Update[0] }

// String implements Source.
func (u Units) String() string {
	s := fmt.Sprintf("units: F %g, I %g, W %g of a rank's share of the model", u.F, u.I, u.W)
	if u.B >= 0 {
		s += fmt.Sprintf(", B %g", u.B)
	}
	if u.More >= 0 {
		s += fmt.Sprintf(", each further micro-batch of a joined W %g", u.More)
	}
	return s + fmt.Sprintf("; transfer %g, reduce %g, update %g", u.Transfer, u.Reduce, u.Update)
}

func (u Units) unit() string { return "units" }

func (u Units) costs(_ *job, _ []model.Range, chunks int) costs { return unitCosts{u.share(chunks)} }

func (d Device) unit() string { return "s" }

func (d Device) costs(j *job, cut []model.Range, _ int) costs { return newDeviceCosts(d, j, cut) }
