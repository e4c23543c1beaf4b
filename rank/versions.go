package rank

import (
	"context"
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/schedule"
)

// versions keeps the older weights of a stage that micro-batches still read, in
// an asynchronous schedule (schedule.Async): those between F and W, and those whose
// F is yet to come. The newest version always lies in the stage's own
// weights, where the optimizer changes it in place; an Update copies it aside first,
// when somebody still reads it. So a step begins and ends with one version in its
// one place: checkpoints see nothing of the others, and every step allocates alike.
type versions struct {
	of      []int // by micro-batch: the version that F, I and W read
	readers []int // by version, micro-batches of a whole step
	left    []int // by version, micro-batches that have still to read it
	newest  int   // updates done in this step
	updates int   // of a step
	old     map[int]oldVersion
}

// oldVersion is a copy of the weights as they were; buf has its parameters by layer.
type oldVersion struct {
	block kernels.Block
	buf   [][]kernels.Buffer
}

// newVersions reads a stage's versions off the program of the rank that holds it.
func newVersions(s *schedule.Schedule, program []schedule.Op, stage int) *versions {
	v := &versions{of: schedule.Versions(s)[stage], old: map[int]oldVersion{}}
	for _, o := range program {
		if o.Kind == schedule.Update && o.Stage == stage {
			v.updates++
		}
	}
	v.readers = make([]int, v.updates+1)
	for _, n := range v.of {
		v.readers[n]++
	}
	return v
}

// begin starts a step.
func (v *versions) begin() {
	v.newest = 0
	v.left = append(v.left[:0], v.readers...)
}

// weightsOf returns the weights that a micro-batch reads, by layer and parameter.
func (s *stage) weightsOf(mb int) [][]kernels.Buffer {
	v := s.versions
	if v == nil || v.of[mb] == v.newest {
		return s.wBuf
	}
	return v.old[v.of[mb]].buf
}

// read notes that micro-batches are past their W and returns the memory of a version
// that nobody reads any more.
func (s *stage) read(first, last int) (kernels.Block, bool) {
	v := s.versions
	if v == nil {
		return kernels.Block{}, false
	}
	n := v.of[first]
	if v.left[n] -= last - first + 1; v.left[n] > 0 || n == v.newest {
		return kernels.Block{}, false
	}
	b := v.old[n].block
	delete(v.old, n)
	return b, true
}

// renew makes the weights ready to become the next version: a copy of them stays
// where micro-batches still read them as they are.
func (s *stage) renew() error {
	v := s.versions
	if v.left[v.newest] > 0 {
		b, err := s.arena.Alloc(s.params.Len*s.typ.Size(), catVersions)
		if err != nil {
			return err
		}
		flat := b.As(s.typ)
		v.old[v.newest] = oldVersion{b, s.views(flat)}
		s.dev.Copy(flat, s.readWeights())
	}
	v.newest++
	return nil
}

// update performs an Update op: the gradients since the last one, added over the
// replicas, make the next version of the stage's weights.
func (m *machine) update(ctx context.Context, st *stage) error {
	if st.versions == nil {
		return fmt.Errorf("schedule %s has no rule of weight versions", m.sched.Name)
	}
	if err := m.reduce(ctx, st); err != nil {
		return err
	}
	if err := st.renew(); err != nil {
		return err
	}
	m.apply(st)
	return nil
}

// applyWithin is the optimizer's part of an Update op. The rate is the step's; a
// norm over all stages is not known here, so nothing is clipped.
func (u *update) applyWithin(st *stage) {
	u.addSquares(st)
	u.opt.applyTo(u.m.dev, st, u.opt.updates+st.versions.newest, u.opt.lr.At(u.opt.step+1), 1)
}

// addSquares adds to the stage's squared gradient norms, which one replica counts.
func (u *update) addSquares(st *stage) {
	if u.replica != 0 {
		return
	}
	if st.squares == nil {
		st.squares = make([]float64, len(st.params.Params))
	}
	for k, x := range u.sumSquares(st) {
		st.squares[k] += x
	}
}

// meanSquares returns the squared gradient norm of each parameter, averaged over
// the updates of the step, and begins anew.
func (st *stage) meanSquares() []float64 {
	out := st.squares
	st.squares = nil
	for k := range out {
		out[k] /= float64(st.versions.updates)
	}
	return out
}

// lossScales writes the factor of the loss gradient by micro-batch: one over the
// terms, of all replicas, that the micro-batch's update covers.
func lossScales(out []float32, s *schedule.Schedule, terms func(mb, n int) int) {
	every := s.Microbatches
	if s.Async != nil { // the last update of a step may cover fewer
		every = s.Async.Every
	}
	for mb := 0; mb < s.Microbatches; mb += every {
		n := min(every, s.Microbatches-mb)
		scale := 1 / float32(max(1, terms(mb, n)))
		for i := range n {
			out[mb+i] = scale
		}
	}
}
