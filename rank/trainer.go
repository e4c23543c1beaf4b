package rank

import (
	"context"
	"fmt"
	"slices"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// Trainer is one rank's part of a run: it performs steps.
type Trainer struct {
	spec    *jobs.Spec
	work    Work
	grid    jobs.Grid
	place   jobs.Coord
	m       *machine
	u       *update
	world   *collectives.Comm
	planned Memory
	arena   kernels.Buffer
	dev     kernels.Device
	offset  int64 // to rank 0's clock, ns
	events  []opEvent
	samples *stepData    // nil in a rehearsal
	held    func() error // see Config.Held
	digest  *digest      // of the data; nil on other ranks than 0
	hurry   bool         // a save must not wait for it: the run was asked to stop
}

// opEvent is a performed op, in nanoseconds of this rank's clock.
type opEvent struct {
	op         schedule.Op
	category   string
	start, end int64
}

// WorkOf returns what a job's ranks perform: the lowered, checked schedule, the model and its cut.
func WorkOf(spec *jobs.Spec) (Work, error) {
	mdl, err := model.New(spec.ModelConfig())
	if err != nil {
		return Work{}, err
	}
	return workWith(spec, mdl)
}

func workWith(spec *jobs.Spec, mdl *model.Model) (Work, error) {
	s, err := spec.BuildSchedule()
	if err != nil {
		return Work{}, err
	}
	if !s.Lowered {
		if s, err = schedule.Lower(s); err != nil {
			return Work{}, err
		}
	}
	cut, err := mdl.Cut(s.Stages)
	if err != nil {
		return Work{}, err
	}
	return Work{Schedule: s, Model: mdl, Cut: cut, Optim: spec.Optimizer.Rule(),
		Shape: mdl.Shape(spec.MicrobatchSize()), P2Stream: spec.Device.P2Stream}, nil
}

// New plans the rank's memory, allocates it and initialises the parameters. All
// ranks of the world call it together.
func New(ctx context.Context, spec *jobs.Spec, t collectives.Transport, dev kernels.Device, source data.Source) (*Trainer, error) {
	mdl, err := model.New(spec.ModelConfig())
	if err != nil {
		return nil, err
	}
	return NewWith(ctx, spec, mdl, t, dev, source)
}

// NewWith is New of another model than the job's.
func NewWith(ctx context.Context, spec *jobs.Spec, mdl *model.Model, t collectives.Transport, dev kernels.Device, source data.Source) (*Trainer, error) {
	w, err := workWith(spec, mdl)
	if err != nil {
		return nil, err
	}
	tr, err := newTrainer(spec, w, t)
	if err != nil {
		return nil, err
	}
	if tr.planned, err = PlanMemory(tr.work, tr.place.Stage, dev); err != nil {
		return nil, err
	}
	if limit := int64(spec.Schedule.MemoryLimit); limit > 0 && tr.planned.Arena > limit {
		return nil, exitcode.With(exitcode.Usage, fmt.Errorf("rank %d: the plan needs %d bytes, schedule.memory_limit allows %d; pipetrain plan lists the schedules that fit, schedule.kind = \"auto\" takes the fastest of them",
			t.Rank(), tr.planned.Arena, limit))
	}
	if tr.arena, err = dev.Alloc(max(tr.planned.Arena, kernels.ArenaAlign)); err != nil {
		return nil, exitcode.With(exitcode.OutOfMemory, fmt.Errorf("rank %d: the plan needs %d bytes (%s): %w; fewer micro-batches in flight, backward_p2 = \"fused\" or more stages need less",
			t.Rank(), tr.planned.Arena, tr.planned.table(), err))
	}
	if err := tr.machine(t, kernels.NewArena(tr.arena), dev); err != nil {
		return nil, err
	}
	m := tr.m
	if err := tr.equip(ctx, t); err != nil {
		return nil, err
	}
	tr.samples, err = newStepData(tr.work, source, data.Cut{Batch: spec.Train.Batch, Replicas: spec.Parallel.Replicas, Microbatches: tr.work.Schedule.Microbatches}, tr.place.Replica)
	if err != nil {
		return nil, err
	}
	m.data = tr.samples
	for _, st := range m.stages {
		st.number, st.lossScale = tr.place.Replica*tr.work.Schedule.Microbatches, tr.samples.scales
	}
	if err := tr.connect(t); err != nil {
		return nil, err
	}
	tr.initialise()
	if tr.offset, err = clockOffset(ctx, t); err != nil {
		return nil, fmt.Errorf("comparing clocks: %w", err)
	}
	return tr, dev.Sync()
}

// newTrainer finds the rank's place in the job.
func newTrainer(spec *jobs.Spec, w Work, t collectives.Transport) (*Trainer, error) {
	grid := spec.Grid()
	if t.Size() != grid.World() {
		return nil, exitcode.With(exitcode.Usage, fmt.Errorf("the job needs %d ranks (%d stages × %d replicas), the world has %d: start it with %d ranks or change [parallel]",
			grid.World(), spec.Parallel.Stages, spec.Parallel.Replicas, t.Size(), grid.World()))
	}
	return &Trainer{spec: spec, work: w, grid: grid, place: grid.Coord(t.Rank()), world: collectives.World(t)}, nil
}

// machine makes the rank's machine over an arena.
func (tr *Trainer) machine(t collectives.Transport, arena *kernels.Arena, dev kernels.Device) error {
	m, err := newMachine(tr.work, tr.place.Stage, arena, dev)
	if err != nil {
		return err
	}
	tr.m, tr.dev = m, dev
	m.dog = &watchdog{allowed: tr.spec.Run.StallTimeout}
	pipeline := tr.grid.Pipeline(tr.place)
	m.world = func(pipelineRank int) int { return pipeline[pipelineRank] }
	m.record = func(op schedule.Op, category string, start, end int64) {
		tr.events = append(tr.events, opEvent{op, category, start, end})
	}
	tr.u = &update{m: m, world: tr.world, replicas: tr.spec.Parallel.Replicas, replica: tr.place.Replica, reducer: newReducer(dev),
		opt: optimizer{rule: tr.work.Optim, lr: tr.spec.Rate(), clip: tr.spec.Optimizer.Clip}}
	m.apply = tr.u.applyWithin
	for _, p := range tr.work.Model.Params() {
		stage := slices.IndexFunc(tr.work.Cut, func(r model.Range) bool { return p.Layer >= r.First && p.Layer < r.End })
		tr.u.params = append(tr.u.params, paramInfo{name: p.Name, layer: tr.work.Model.Layers[p.Layer].Name(), stage: stage})
	}
	tr.u.vector = make([]float64, len(tr.u.params)+tr.u.replicas*tr.work.Schedule.Microbatches+perRank*t.Size())
	return nil
}

// Communicator ids. The world has 0.
const (
	firstStageComm = 1
	firstTieComm   = 1024
)

// connect makes the communicators: one for each stage over all ranks that hold
// it, one for each set of tied parameters.
func (tr *Trainer) connect(t collectives.Transport) error {
	sched := tr.work.Schedule
	stageComm := map[int]*collectives.Comm{}
	for _, i := range tr.m.order() {
		ranks := tr.grid.Peers(tr.place, sched.Holders(i)...)
		if len(ranks) == 1 {
			continue
		}
		c, err := collectives.NewComm(t, ranks, firstStageComm+i)
		if err != nil {
			return err
		}
		stageComm[i] = c
	}
	tr.m.reduce = func(ctx context.Context, st *stage) error {
		c := stageComm[st.index]
		if c == nil {
			return nil
		}
		return tr.u.reducer.sum(ctx, c, st.grads.As(kernels.F32))
	}

	u := tr.u
	copies := map[int][]model.ParamRef{}
	var owners []int
	for _, p := range tr.work.Model.Params() {
		if p.Tie == "" {
			continue
		}
		if copies[p.Owner] == nil {
			owners = append(owners, p.Owner)
		}
		copies[p.Owner] = append(copies[p.Owner], p)
	}
	for k, o := range owners {
		var ti tie
		var ranks []int
		for _, p := range copies[o] {
			stage := u.params[p.Index].stage
			for _, h := range sched.Holders(stage) {
				r := tr.m.world(h)
				if !slices.Contains(ranks, r) {
					ranks = append(ranks, r)
				}
			}
			if st := tr.m.stages[stage]; st != nil {
				ti.local = append(ti.local, tiedCopy{
					grad: st.gBuf[p.Layer-tr.work.Cut[stage].First][p.Slot],
					adds: sched.Holders(stage)[0] == tr.m.me,
				})
			}
		}
		if len(ti.local) == 0 {
			continue
		}
		if len(ranks) > 1 {
			c, err := collectives.NewComm(t, ranks, firstTieComm+k)
			if err != nil {
				return err
			}
			ti.comm = c
		}
		u.ties = append(u.ties, ti)
	}
	return nil
}

// initialise gives the parameters their first values, from the seed alone.
func (tr *Trainer) initialise() {
	for _, i := range tr.m.order() {
		st := tr.m.stages[i]
		for k, p := range st.params.Params {
			host := make([]float32, p.Len())
			model.Initialise(host, p.Param, tr.spec.Seed, p.Owner)
			tr.dev.CopyIn(st.params.View(st.weights.As(kernels.F32), k), float32Bytes(host))
		}
		st.round()
		// Alloc gave zeroed memory, but padding and gradients must stay zero whatever a device does.
		tr.dev.Zero(st.grads.Buffer)
		for _, b := range st.states {
			tr.dev.Zero(b.Buffer)
		}
	}
}

// StepResult is what every rank knows after a step.
type StepResult struct {
	Step           int
	Loss, GradNorm float64
	LR             float64
	Makespan       float64 // seconds from the first op of any rank to the last
	Busy           float64 // seconds of compute, summed over the ranks
	Seconds        float64 // the whole step, optimizer included
	Bubble         float64 // idle share of ranks × makespan
	Stop           bool    // a rank was asked to stop
}

// Step performs one training step (numbered from 1) on all ranks together.
// stop says that this rank was asked to stop after it.
func (tr *Trainer) Step(ctx context.Context, step int, stop bool) (StepResult, error) {
	tr.events = tr.events[:0]
	tr.u.terms = tr.m.data.begin(step)
	start := now()
	if err := tr.m.step(ctx); err != nil {
		return StepResult{}, err
	}
	span := tr.span()
	lr := tr.u.opt.lr.At(tr.u.opt.step + 1)
	r, err := tr.u.finish(ctx, span, stop)
	end := now()
	if err != nil {
		return StepResult{}, fmt.Errorf("step %d: %w", step, err)
	}
	out := StepResult{Step: step, Loss: r.loss, GradNorm: r.gradNorm, LR: lr, Makespan: r.makespan, Busy: r.busy,
		Seconds: float64(end-start) * 1e-9, Stop: r.stop}
	if r.makespan > 0 {
		out.Bubble = 1 - r.busy/(r.makespan*float64(tr.grid.World()))
	}
	return out, nil
}

// span returns this rank's part of the step's timeline: compute, no waits.
func (tr *Trainer) span() spanOf {
	var s spanOf
	var busy, until int64
	first := true
	for _, e := range tr.events {
		// A reduction is part of the makespan, and so is an update that an asynchronous schedule makes within it.
		if (e.category == "reduce" || e.category == "optimizer") && !first {
			s.end = max(s.end, float64(e.end+tr.offset)*1e-9)
		}
		if e.category != "compute" {
			continue
		}
		if first {
			s.start = float64(e.start+tr.offset) * 1e-9
			until = e.start
			first = false
		}
		s.end = max(s.end, float64(e.end+tr.offset)*1e-9)
		// What runs beside another op is busy once. Ops begin in the order of the program.
		busy += max(0, e.end-max(e.start, until))
		until = max(until, e.end)
	}
	s.busy = float64(busy) * 1e-9
	return s
}

// Measured returns the memory that the run has used so far.
func (tr *Trainer) Measured() Memory { return measure(tr.m.arena) }

// Planned returns the memory that the plan foresaw.
func (tr *Trainer) Planned() Memory { return tr.planned }

// Close frees what the rank has of the device.
func (tr *Trainer) Close() {
	if tr.m.graphs != nil {
		tr.m.graphs.close()
	}
	tr.u.reducer.close()
	_ = tr.m.courier.Close() // nothing is on its way any more
	tr.dev.Free(tr.arena)
}
