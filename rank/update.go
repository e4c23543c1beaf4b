package rank

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	"github.com/pipetrain/pipetrain/collectives"
	"github.com/pipetrain/pipetrain/exitcode"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
)

// update ends a step: it adds the gradients of tied parameters, forms the loss
// and the global gradient norm, and performs the optimizer on every stage here.
//
// Everything that all ranks must agree on travels in one vector of F64 in which
// each rank fills its own places and leaves zeros elsewhere: the all-reduce then
// only adds zeros, and each rank adds up the parts in the same global order. So
// neither the cut into stages nor the transport changes a bit of the norm.
type update struct {
	m        *machine
	world    *collectives.Comm
	replicas int
	replica  int
	params   []paramInfo // of the whole model, in global order
	ties     []tie
	opt      optimizer
	terms    int // losses of the step's global batch
	reducer  *reducer

	vector []float64
}

type paramInfo struct {
	name  string
	layer string
	stage int
}

// tie is one set of parameters that share their values, seen from this rank.
type tie struct {
	local []tiedCopy        // the copies here, in global order
	comm  *collectives.Comm // over the ranks with a copy, in the order of their first copy; nil when all are here
}

// tiedCopy is the gradient of one copy. Where several ranks hold it
// (bidirectional schedules) all have the same sum, and only the first adds it.
type tiedCopy struct {
	grad kernels.Buffer
	adds bool
}

// stepResult is what every rank knows after a step.
type stepResult struct {
	loss, gradNorm float64
	makespan, busy float64 // seconds; busy summed over the ranks
	stop           bool
}

// spanOf is this rank's part of a step's timeline, seconds on rank 0's clock.
type spanOf struct{ start, end, busy float64 }

const perRank = 4 // start, end, busy, stop

func (u *update) finish(ctx context.Context, span spanOf, stop bool) (stepResult, error) {
	m := u.m
	mbs := m.sched.Microbatches
	v := u.vector
	clear(v)
	losses := len(u.params)
	ranks := losses + u.replicas*mbs

	if err := u.collect(ctx, v, losses); err != nil {
		return stepResult{}, err
	}
	own := v[ranks+perRank*u.world.Rank():]
	own[0], own[1], own[2] = span.start, span.end, span.busy
	if stop {
		own[3] = 1
	}
	if err := u.world.AllReduceSumF64(ctx, v); err != nil {
		return stepResult{}, fmt.Errorf("forming loss and gradient norm: %w", err)
	}

	var r stepResult
	for _, x := range v[losses:ranks] {
		r.loss += x
	}
	r.loss /= float64(max(1, u.terms))
	r.gradNorm = model.GlobalNorm(v[:losses])
	first, last := math.Inf(1), math.Inf(-1)
	for i := ranks; i < len(v); i += perRank {
		first, last = min(first, v[i]), max(last, v[i+1])
		r.busy += v[i+2]
		r.stop = r.stop || v[i+3] != 0
	}
	r.makespan = last - first
	if err := u.checkNumbers(v, losses, mbs, r); err != nil {
		return r, err
	}
	if m.sched.Async == nil {
		u.opt.apply(m, r.gradNorm)
	} else {
		u.opt.advance(m)
	}
	return r, m.dev.Sync()
}

// collect adds the gradients of tied parameters and fills in this rank's sums
// of squares and losses.
func (u *update) collect(ctx context.Context, v []float64, losses int) error {
	m, mbs := u.m, u.m.sched.Microbatches
	for _, t := range u.ties {
		if err := u.addTied(ctx, t); err != nil {
			return fmt.Errorf("adding the gradients of tied parameters: %w", err)
		}
	}
	for _, i := range m.order() {
		// A stage that several ranks hold (replicas, bidirectional schedules) is counted by the first.
		if u.replica != 0 || m.sched.Holders(i)[0] != m.me {
			continue
		}
		st := m.stages[i]
		var squares []float64
		if st.versions == nil {
			squares = u.sumSquares(st)
		} else {
			squares = st.meanSquares()
		}
		for k, p := range st.params.Params {
			v[p.Index] = squares[k]
		}
	}
	if last := m.stages[m.sched.Stages-1]; last != nil {
		part := make([]float64, mbs)
		m.dev.CopyOut(float64Bytes(part), m.losses.As(kernels.F64))
		for mb := range part {
			if m.sched.RankOf(last.index, mb) == m.me {
				v[losses+u.replica*mbs+mb] = part[mb]
			}
		}
	}
	return nil
}

// sumSquares returns the sum of squares of each parameter's gradient.
func (u *update) sumSquares(st *stage) []float64 {
	dev := u.m.dev
	sums := u.m.sums.As(kernels.F64).Slice(0, int64(len(st.params.Params)))
	st.params.SumSquares(dev, sums, st.grads.As(kernels.F32))
	host := make([]float64, sums.Len)
	dev.CopyOut(float64Bytes(host), sums)
	return host
}

// checkNumbers names where a NaN or Inf came from.
func (u *update) checkNumbers(v []float64, losses, mbs int, r stepResult) error {
	remedy := "a smaller optimizer.lr, a longer warmup or optimizer.clip usually helps"
	if u.m.sched.Async != nil { // which cannot clip
		remedy = "a smaller optimizer.lr or a longer warmup usually helps (an asynchronous schedule makes several updates a step)"
	}
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	if !finite(r.loss) {
		for i, x := range v[losses : losses+u.replicas*mbs] {
			if !finite(x) {
				return exitcode.With(exitcode.Numerics, fmt.Errorf("the loss is %v: replica %d, micro-batch %d gave %v; %s", r.loss, i/mbs, i%mbs, x, remedy))
			}
		}
	}
	if !finite(r.gradNorm) {
		for i, x := range v[:losses] {
			if !finite(x) {
				p := u.params[i]
				return exitcode.With(exitcode.Numerics, fmt.Errorf("the gradient norm is %v: first at %s (stage %d, layer %s); a smaller optimizer.lr or a longer warmup usually helps", r.gradNorm, p.name, p.stage, p.layer))
			}
		}
	}
	return nil
}

func (u *update) addTied(ctx context.Context, t tie) error {
	dev := u.m.dev
	for i, c := range t.local {
		if !c.adds {
			dev.Zero(c.grad)
		}
		if i > 0 {
			dev.Add(t.local[0].grad, t.local[0].grad, c.grad)
		}
	}
	if t.comm != nil {
		if err := u.reducer.sum(ctx, t.comm, t.local[0].grad); err != nil {
			return err
		}
	}
	for _, c := range t.local[1:] {
		dev.Copy(c.grad, t.local[0].grad)
	}
	return nil
}

// optimizer is the update rule with its schedule of the learning rate.
type optimizer struct {
	rule model.Optimizer
	lr   model.LRSchedule
	clip float64
	step int // steps done
	// updates done, which is what AdamW's bias correction counts: one a step, more
	// in asynchronous schedules.
	updates int
}

// apply updates the weights of every stage and clears the gradients.
func (o *optimizer) apply(m *machine, norm float64) {
	o.advance(m)
	for _, i := range m.order() {
		o.applyTo(m.dev, m.stages[i], o.updates, o.lr.At(o.step), model.ClipScale(norm, o.clip))
	}
}

// advance counts a step and its updates.
func (o *optimizer) advance(m *machine) {
	o.step++
	if a := m.sched.Async; a != nil {
		o.updates += (m.sched.Microbatches + a.Every - 1) / a.Every
	} else {
		o.updates++
	}
}

// applyTo performs one update of a stage, its n-th of the run.
func (o *optimizer) applyTo(dev kernels.Device, st *stage, n int, lr float64, scale float32) {
	var states []kernels.Buffer
	for _, b := range st.states {
		states = append(states, b.As(kernels.F32))
	}
	var rounded kernels.Buffer
	if st.typ != kernels.F32 {
		rounded = st.readWeights()
	}
	o.rule.Update(dev, st.params, st.weights.As(kernels.F32), st.grads.As(kernels.F32), rounded, states, n, lr, scale)
	dev.Zero(st.grads.Buffer)
}

func float32Bytes(x []float32) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*4)
}

func float64Bytes(x []float64) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*8)
}
