package rank

import (
	"slices"
	"testing"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/model"
)

// stale trains on stale weights, plainly: one process, micro-batch after
// micro-batch through the whole model, and a copy of all weights for every
// version that a step makes. It knows no pipeline. What it shares with the engine are
// the layers, the data and the optimizer's kernels.
type stale struct {
	t     *testing.T
	spec  *jobs.Spec
	dev   kernels.Device
	src   data.Source
	model *model.Model
	cut   []model.Range
	shape model.Shape

	// every is how many micro-batches an update covers; reads says which version of a
	// stage's weights micro-batch k sees.
	every int
	reads func(stage, k int) int

	versions [][]kernels.Buffer // [version of the step][parameter]
	grads    [][]kernels.Buffer // [replica][parameter]
	states   [][]kernels.Buffer // [state][parameter]
	slots    [][]kernels.Buffer // [layer][slot]
	updates  int
}

// trainStale runs a job's steps. Its number of stages says where layers belong.
func trainStale(t *testing.T, spec *jobs.Spec, every int, reads func(stage, k int) int) outcome {
	t.Helper()
	s := &stale{t: t, spec: spec, every: every, reads: reads, shape: model.Shape{Batch: spec.MicrobatchSize(), Seq: spec.Model.Seq}}
	dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: spec.Device.BLAS})
	s.must(err)
	defer dev.Close()
	s.dev = dev
	s.src, err = openData(spec)
	s.must(err)
	defer s.src.Close()
	s.model, err = model.New(spec.ModelConfig())
	s.must(err)
	s.cut, err = s.model.Cut(spec.Parallel.Stages)
	s.must(err)

	one := func() (out []kernels.Buffer) {
		for _, p := range s.model.Params() {
			out = append(out, s.alloc(p.Len(), kernels.F32))
		}
		return out
	}
	for range spec.Schedule.Microbatches/every + 1 {
		s.versions = append(s.versions, one())
	}
	for range spec.Parallel.Replicas {
		s.grads = append(s.grads, one())
	}
	for range spec.Optimizer.Rule().States() {
		s.states = append(s.states, one())
	}
	for i, p := range s.model.Params() {
		host := make([]float32, p.Len())
		model.Initialise(host, p.Param, spec.Seed, p.Owner)
		dev.CopyIn(s.versions[0][i], float32Bytes(host))
	}
	for _, l := range s.model.Layers {
		var slots []kernels.Buffer
		for _, sl := range l.Slots() {
			slots = append(slots, s.alloc(sl.Len(s.shape), sl.Type))
		}
		s.slots = append(s.slots, slots)
	}

	out := outcome{weights: map[string][]float32{}}
	for step := 1; step <= spec.Train.Steps; step++ {
		loss, norm := s.step(step)
		out.losses, out.norms = append(out.losses, loss), append(out.norms, norm)
	}
	for i, p := range s.model.Params() {
		for _, part := range savedParts(p.Param, p.Param, 0) {
			host := make([]float32, part.n)
			dev.CopyOut(float32Bytes(host), s.versions[0][i].Slice(part.off, part.n))
			out.weights[part.name] = host
		}
	}
	return out
}

func (s *stale) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stale) alloc(n int64, as kernels.DType) kernels.Buffer {
	b, err := s.dev.Alloc(n * as.Size())
	s.must(err)
	return b.As(as)
}

// step returns the loss and the root mean square of the updates' gradient norms.
func (s *stale) step(step int) (loss, norm float64) {
	m, replicas := s.spec.Schedule.Microbatches, s.spec.Parallel.Replicas
	rate := s.spec.Rate().At(step)
	losses := make([]float64, replicas*m)
	squares := make([]float64, len(s.model.Params()))
	made := 0
	for k := range m {
		for r := range replicas {
			losses[r*m+k] = s.microbatch(step, r, k, min(s.every, m-k+k%s.every))
		}
		if (k+1)%s.every == 0 || k == m-1 {
			s.update(made, rate, squares)
			made++
		}
	}
	for _, x := range losses {
		loss += x
	}
	for i := range squares {
		squares[i] /= float64(made)
	}
	// What the last update made is what the next step begins with.
	for i, w := range s.versions[made] {
		s.dev.Copy(s.versions[0][i], w)
	}
	return loss / float64(s.spec.Train.Batch*s.spec.Model.Seq), model.GlobalNorm(squares)
}

// microbatch adds the gradients of one micro-batch, n of which make an update, and returns its loss.
func (s *stale) microbatch(step, replica, k, n int) float64 {
	rows := s.shape.Rows()
	sample := data.Sample{model.FieldIDs: make([]byte, 4*rows), model.FieldTargets: make([]byte, 4*rows)}
	cut := data.Cut{Batch: s.spec.Train.Batch, Replicas: s.spec.Parallel.Replicas, Microbatches: s.spec.Schedule.Microbatches}
	s.must(data.Read(s.src, cut, step, replica, k, sample))
	end := len(s.model.Layers) - 1
	s.dev.CopyIn(s.slot(0, model.SlotX), sample[model.FieldIDs])
	s.dev.CopyIn(s.slot(end, model.FieldTargets), sample[model.FieldTargets])
	rowLoss, loss := s.alloc(int64(rows), kernels.F32), s.alloc(1, kernels.F64)
	defer s.dev.Free(rowLoss.As(kernels.U8))
	defer s.dev.Free(loss.As(kernels.U8))

	call := func(i int, p model.Pass, f func(c *model.Call)) {
		stage := slices.IndexFunc(s.cut, func(r model.Range) bool { return i >= r.First && i < r.End })
		c := &model.Call{Dev: s.dev, Shape: s.shape, Slots: s.slots[i], LossScale: 1 / float32(n*rows*s.spec.Parallel.Replicas)}
		weights := s.versions[s.reads(stage, k)]
		for j, ref := range s.model.Params() {
			if ref.Layer == i {
				w := weights[j]
				if t := s.model.Config.Type; t != kernels.F32 { // rounded for each call, by itself
					w = s.alloc(ref.Len(), t)
					defer s.dev.Free(w.As(kernels.U8))
					s.dev.Convert(w, weights[j])
				}
				c.Weights, c.Grads = append(c.Weights, w), append(c.Grads, s.grads[replica][j])
			}
		}
		if work := s.model.Layers[i].Work(p, s.dev, s.shape); work > 0 {
			c.Work = s.alloc(work, kernels.F32)
			defer s.dev.Free(c.Work.As(kernels.U8))
		}
		f(c)
		s.must(s.dev.Sync())
	}
	for i, l := range s.model.Layers {
		call(i, model.PassForward, func(c *model.Call) {
			if c.Out = rowLoss; i < end {
				c.Out = s.slot(i+1, model.SlotX)
			}
			l.Forward(c)
		})
	}
	for i := end; i >= 0; i-- {
		l := s.model.Layers[i]
		call(i, model.PassInput, func(c *model.Call) {
			if i > 0 {
				c.DX = s.slot(i-1, model.SlotDY)
			}
			l.BackwardInput(c)
		})
		call(i, model.PassWeight, func(c *model.Call) { l.BackwardWeight(c) })
	}
	s.dev.Sum(loss, rowLoss)
	host := make([]float64, 1)
	s.dev.CopyOut(float64Bytes(host), loss)
	return host[0]
}

func (s *stale) slot(layer int, name string) kernels.Buffer {
	return s.slots[layer][model.SlotIndex(s.model.Layers[layer], name)]
}

// update makes version newest+1, a whole copy, from version newest.
func (s *stale) update(newest int, rate float64, squares []float64) {
	s.updates++
	o := s.spec.Optimizer.Rule()
	sum := s.alloc(1, kernels.F64)
	defer s.dev.Free(sum.As(kernels.U8))
	for i, p := range s.model.Params() {
		g := s.grads[0][i]
		for _, more := range s.grads[1:] {
			s.dev.Add(g, g, more[i])
		}
		host := make([]float64, 1)
		s.dev.SumSquares(sum, g)
		s.dev.CopyOut(float64Bytes(host), sum)
		squares[i] += host[0]

		w := s.versions[newest+1][i]
		s.dev.Copy(w, s.versions[newest][i])
		decay := float32(0)
		if p.Decay {
			decay = float32(o.WeightDecay)
		}
		if o.Kind == "adamw" {
			s.dev.StepAdamW(w, g, s.states[0][i], s.states[1][i], kernels.Buffer{}, kernels.AdamW{LR: float32(rate), Beta1: float32(o.Values["beta1"]), Beta2: float32(o.Values["beta2"]),
				Eps: float32(o.Values["eps"]), WeightDecay: decay, Step: s.updates, GradScale: 1})
		} else {
			s.dev.StepSGD(w, g, s.states[0][i], kernels.Buffer{}, kernels.SGD{LR: float32(rate), Momentum: float32(o.Values["momentum"]), WeightDecay: decay, GradScale: 1})
		}
		for _, grads := range s.grads {
			s.dev.Zero(grads[i])
		}
	}
	s.must(s.dev.Sync())
}
