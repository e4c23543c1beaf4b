package rank_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pipetrain/pipetrain/collectives/local"
	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cpu"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/rank"
	"github.com/pipetrain/pipetrain/schedule"
)

// A layer that the project does not have, as docs/add-a-layer.md adds one: a convolution along
// a line of pixels that halves their number, so that rows and columns change from layer to layer.
//
//	c[i] = A·(x[2i], x[2i+1]) + B·x[2i+2] (+ T[mark[i]])    y = norm(c)
//
// The gradient of norm's gain is summed in I, a row a micro-batch, so c need not live until W. T, in one of
// the layers, is a table whose rows a field of the data names: it reaches a stage in the middle.
type toyConv struct {
	index, rows, in, out int // rows that come out of a sample
	marks                int // rows of T; 0: none
	nudge                *nudge
}

const (
	toyX = iota
	toyC
	toyRSTD
	toyDY
	toyDC
	toyDGain
	toyMarks
)

const toyEps = 0.1

func (l toyConv) Name() string { return fmt.Sprintf("conv.%d", l.index) }

func (l toyConv) Params() []model.Param {
	matrix := func(name string, rows, cols int) model.Param {
		return model.Param{Name: l.Name() + "." + name, Rows: rows, Cols: cols, Init: model.Init{Std: 1 / math.Sqrt(float64(cols))}, Decay: true}
	}
	p := []model.Param{matrix("a", l.out, 2*l.in), matrix("b", l.out, l.in),
		{Name: l.Name() + ".gain", Rows: 1, Cols: l.out, Vector: true, Init: model.Init{Value: 1}}}
	if l.marks > 0 {
		p = append(p, matrix("t", l.marks, l.out))
	}
	return p
}

func (l toyConv) Slots() []model.Slot {
	t := kernels.F32
	s := []model.Slot{
		toyX:     {Name: model.SlotX, Life: model.UntilWeight, Matrix: l.In()},
		toyC:     {Name: "c", Life: model.UntilInput, Matrix: l.Out()},
		toyRSTD:  {Name: "rstd", Life: model.UntilInput, Matrix: model.Matrix{Rows: model.Sample(l.rows), Width: 1, Type: t}},
		toyDY:    {Name: model.SlotDY, Life: model.FromInput, Matrix: l.Out()},
		toyDC:    {Name: "dc", Life: model.FromInput, Matrix: l.Out()},
		toyDGain: {Name: "dgain", Life: model.FromInput, Matrix: model.Matrix{Rows: model.Micro(1), Width: l.out, Type: t}},
	}
	if l.marks > 0 {
		s = append(s, model.Slot{Name: "marks", Life: model.UntilWeight, Field: "marks", Matrix: model.Matrix{Rows: model.Sample(l.rows), Width: 1, Type: kernels.I32}})
	}
	return s
}

func (l toyConv) In() model.Matrix {
	return model.Matrix{Rows: model.Sample(2 * l.rows), Width: l.in, Type: kernels.F32}
}

func (l toyConv) Out() model.Matrix {
	return model.Matrix{Rows: model.Sample(l.rows), Width: l.out, Type: kernels.F32}
}

func (l toyConv) Work(model.Pass, kernels.Ops, model.Shape) int64 { return 0 }

func (l toyConv) FLOPs(_ model.Pass, s model.Shape) int64 {
	return 2 * int64(s.Batch*l.rows) * int64(l.out) * int64(3*l.in)
}

// next calls f for each sample with its c[i] and x[2i+2], i counting to one before the last: beyond the
// last pixel is nothing.
func (l toyConv) next(c, x kernels.Buffer, s model.Shape, f func(c, x kernels.Buffer, rows int)) {
	n := l.rows - 1
	if n == 0 {
		return
	}
	for k := range int64(s.Batch) {
		rows := int64(l.rows)
		f(c.Slice(k*rows*int64(l.out), int64(n*l.out)), x.Slice((k*rows+1)*int64(2*l.in), int64((2*n-1)*l.in)), n)
	}
}

func (l toyConv) Forward(c *model.Call) {
	l.nudge.apply(l.index, c)
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Batch*l.rows
	beta := float32(0)
	if l.marks > 0 {
		d.EmbeddingForward(s[toyC], w[3], s[toyMarks], rows, l.out)
		beta = 1
	}
	d.Gemm(false, true, rows, l.out, 2*l.in, 1, s[toyX], 2*l.in, w[0], 2*l.in, beta, s[toyC], l.out)
	l.next(s[toyC], s[toyX], c.Shape, func(y, x kernels.Buffer, n int) {
		d.Gemm(false, true, n, l.out, l.in, 1, x, 2*l.in, w[1], l.in, 1, y, l.out)
	})
	d.RMSNormForward(c.Out, s[toyRSTD], s[toyC], w[2], rows, l.out, toyEps)
}

func (l toyConv) BackwardInput(c *model.Call) {
	d, s, w, rows := c.Dev, c.Slots, c.Weights, c.Shape.Batch*l.rows
	d.Zero(s[toyDGain])
	d.RMSNormBackwardWeight(s[toyDGain], s[toyDY], s[toyC], s[toyRSTD], rows, l.out)
	d.RMSNormBackwardInput(s[toyDC], s[toyDY], s[toyC], s[toyRSTD], w[2], rows, l.out, false)
	d.Gemm(false, false, rows, 2*l.in, l.out, 1, s[toyDC], l.out, w[0], 2*l.in, 0, c.DX, 2*l.in)
	l.next(s[toyDC], c.DX, c.Shape, func(dc, dx kernels.Buffer, n int) {
		d.Gemm(false, false, n, l.in, l.out, 1, dc, l.out, w[1], l.in, 1, dx, 2*l.in)
	})
}

func (l toyConv) BackwardWeight(c *model.Call) {
	d, s, g, rows := c.Dev, c.Slots, c.Grads, c.Shape.Batch*l.rows
	d.Gemm(true, false, l.out, 2*l.in, rows, 1, s[toyDC], l.out, s[toyX], 2*l.in, 1, g[0], 2*l.in)
	l.next(s[toyDC], s[toyX], c.Shape, func(dc, x kernels.Buffer, n int) {
		d.Gemm(true, false, l.out, l.in, n, 1, dc, l.out, x, 2*l.in, 1, g[1], l.in)
	})
	for k := range max(1, c.Shape.Micro) {
		d.Add(g[2], g[2], s[toyDGain].Slice(int64(k*l.out), int64(l.out)))
	}
	if l.marks > 0 {
		d.EmbeddingBackwardWeight(g[3], s[toyMarks], s[toyDC], rows, l.out)
	}
}

// toyPixels gives each pixel the row of a table that it names.
type toyPixels struct {
	pixels, values, out int
	nudge               *nudge
}

func (l toyPixels) Name() string { return "pixels" }
func (l toyPixels) Params() []model.Param {
	return []model.Param{{Name: "pixels.table", Rows: l.values, Cols: l.out, Init: model.Init{Std: 1}, Decay: true}}
}
func (l toyPixels) Slots() []model.Slot {
	return []model.Slot{{Name: model.SlotX, Life: model.UntilWeight, Field: "pixels", Matrix: l.In()},
		{Name: model.SlotDY, Life: model.FromInput, Matrix: l.Out()}}
}
func (l toyPixels) In() model.Matrix {
	return model.Matrix{Rows: model.Sample(l.pixels), Width: 1, Type: kernels.I32}
}
func (l toyPixels) Out() model.Matrix {
	return model.Matrix{Rows: model.Sample(l.pixels), Width: l.out, Type: kernels.F32}
}
func (l toyPixels) Work(model.Pass, kernels.Ops, model.Shape) int64 { return 0 }
func (l toyPixels) FLOPs(model.Pass, model.Shape) int64             { return 0 }
func (l toyPixels) BackwardInput(*model.Call)                       {}
func (l toyPixels) Forward(c *model.Call) {
	l.nudge.apply(0, c)
	c.Dev.EmbeddingForward(c.Out, c.Weights[0], c.Slots[0], c.Shape.Batch*l.pixels, l.out)
}
func (l toyPixels) BackwardWeight(c *model.Call) {
	c.Dev.EmbeddingBackwardWeight(c.Grads[0], c.Slots[0], c.Slots[1], c.Shape.Batch*l.pixels, l.out)
}

// toyHead tells the class of the one row that is left of a sample.
type toyHead struct {
	index, in, classes int
	nudge              *nudge
	first              func(int) // told Call.First of W
}

func (l toyHead) Name() string { return "head" }
func (l toyHead) Params() []model.Param {
	return []model.Param{{Name: "head.weight", Rows: l.classes, Cols: l.in, Init: model.Init{Std: 0.1}, Decay: true}}
}
func (l toyHead) Slots() []model.Slot {
	one := func(name string, life model.Life, width int, t kernels.DType, field string) model.Slot {
		return model.Slot{Name: name, Life: life, Field: field, Matrix: model.Matrix{Rows: model.Sample(1), Width: width, Type: t}}
	}
	return []model.Slot{one(model.SlotX, model.UntilWeight, l.in, kernels.F32, ""), one("label", model.UntilInput, 1, kernels.I32, "label"),
		one("logits", model.UntilWeight, l.classes, kernels.F32, ""), one("lse", model.UntilInput, 1, kernels.F32, "")}
}
func (l toyHead) In() model.Matrix  { return l.Slots()[0].Matrix }
func (l toyHead) Out() model.Matrix { return l.Slots()[3].Matrix }

func (l toyHead) Work(model.Pass, kernels.Ops, model.Shape) int64 { return 0 }
func (l toyHead) FLOPs(_ model.Pass, s model.Shape) int64 {
	return 2 * int64(s.Batch) * int64(l.in*l.classes)
}
func (l toyHead) Forward(c *model.Call) {
	l.nudge.apply(l.index, c)
	d, s, rows := c.Dev, c.Slots, c.Shape.Batch
	d.Gemm(false, true, rows, l.classes, l.in, 1, s[0], l.in, c.Weights[0], l.in, 0, s[2], l.classes)
	d.CrossEntropyForward(c.Out, s[3], s[2], s[1], rows, l.classes)
}
func (l toyHead) BackwardInput(c *model.Call) {
	d, s, rows := c.Dev, c.Slots, c.Shape.Batch
	d.CrossEntropyBackward(s[2], s[2], s[3], s[1], rows, l.classes, c.LossScale)
	d.Gemm(false, false, rows, l.in, l.classes, 1, s[2], l.classes, c.Weights[0], l.in, 0, c.DX, l.in)
}
func (l toyHead) BackwardWeight(c *model.Call) {
	if l.first != nil {
		l.first(c.First)
	}
	c.Dev.Gemm(true, false, l.classes, l.in, c.Shape.Batch, 1, c.Slots[2], l.classes, c.Slots[0], l.in, 1, c.Grads[0], l.in)
}

// nudge adds to one weight before it is first read: what finite differences need.
type nudge struct {
	layer, param, elem int
	by                 float32
	once               sync.Once
}

func (n *nudge) apply(layer int, c *model.Call) {
	if n == nil || n.layer != layer {
		return
	}
	b := c.Dev.Host(c.Weights[n.param].Slice(int64(n.elem), 1))
	if b == nil { // the memory is planned
		return
	}
	n.once.Do(func() {
		binary.NativeEndian.PutUint32(b, math.Float32bits(math.Float32frombits(binary.NativeEndian.Uint32(b))+n.by))
	})
}

const (
	toyImage   = 64 // pixels
	toyValues  = 6
	toyClasses = 3
)

func toyModel(t *testing.T, n *nudge, first func(int)) *model.Model {
	t.Helper()
	layers := []model.Layer{toyPixels{toyImage, toyValues, 3, n}}
	in := 3
	for rows := toyImage / 2; rows > 0; rows /= 2 {
		l := toyConv{index: len(layers), rows: rows, in: in, out: in + 1, nudge: n}
		if rows == 8 {
			l.marks = 2
		}
		layers, in = append(layers, l), in+1
	}
	m, err := model.Chain(model.Config{Seq: 1}, append(layers, toyHead{len(layers), in, toyClasses, n, first}))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// toySource has images whose pixels lean towards what their class says.
type toySource struct{ data.Source }

func (toySource) Fields() []data.Field {
	return []data.Field{{Name: "pixels", Type: "i32", Len: toyImage}, {Name: "marks", Type: "i32", Len: 8}, {Name: "label", Type: "i32", Len: 1}}
}
func (toySource) Terms(int64) int     { return 1 }
func (toySource) Fingerprint() string { return "toy" }
func (toySource) Sample(n int64, into data.Sample) error {
	class := int32(n*n+n/3) % toyClasses
	for i := range into.I32("pixels", toyImage) {
		into.I32("pixels", toyImage)[i] = 2*class + int32((n*int64(i+3))%5%2)
	}
	for i := range into.I32("marks", 8) {
		into.I32("marks", 8)[i] = int32(n+int64(i)) % 2
	}
	for i := range into.I32("label", 1) {
		into.I32("label", 1)[i] = class
	}
	return nil
}

const toyJob = `
name = "toy"
seed = 5
[model]
kind = "transformer"
layers = 8
dim = 8
heads = 2
seq = 1
[data]
kind = "synthetic"
[train]
steps = 12
batch = 12
[optimizer]
kind = "sgd"
lr = 0.2
decay = "constant"
momentum = 0.5
warmup = 0
clip = 0
weight_decay = 0
[schedule]
microbatches = 6
[device]
kind = "cpu"
blas = "go"
`

// toyRun trains the toy and returns its bits and the weights before the first step.
func toyRun(t *testing.T, m *model.Model, sets ...string) (after bits, before map[string][]float32) {
	t.Helper()
	spec, err := jobs.Parse("toy.toml", []byte(toyJob), sets, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 60*time.Second, fmt.Errorf("the run hangs"))
	defer cancel()
	after, before = bits{weights: map[string][]float32{}}, map[string][]float32{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for r, tp := range local.NewWorldWith(spec.World(), local.Options{Rendezvous: true}) {
		wg.Go(func() {
			err := func() error {
				dev, err := cpu.New(cpu.Options{Threads: 1, BLAS: "go", ISA: "go"})
				if err != nil {
					return err
				}
				defer dev.Close()
				tr, err := rank.NewWith(ctx, spec, m, tp, dev, toySource{})
				if err != nil {
					return err
				}
				defer tr.Close()
				mu.Lock()
				for name, w := range tr.Weights() {
					before[name] = slices.Clone(w)
				}
				mu.Unlock()
				for step := 1; step <= spec.Train.Steps; step++ {
					res, err := tr.Step(ctx, step, false)
					if err != nil {
						return err
					}
					if r == 0 {
						after.losses, after.norms = append(after.losses, res.Loss), append(after.norms, res.GradNorm)
					}
				}
				if got, want := tr.Measured(), tr.Planned(); got.Arena != want.Arena {
					return fmt.Errorf("arena of %d bytes where %d were planned", got.Arena, want.Arena)
				}
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(after.weights, tr.Weights())
				return nil
			}()
			if err != nil {
				cancel()
				t.Errorf("%v: rank %d: %v", sets, r, err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		t.FailNow()
	}
	return after, before
}

// Three stages, whose messages have other rows and columns each, give the gradients that finite differences do.
func TestToyAgainstDifferences(t *testing.T) {
	sets := []string{"parallel.stages=3", "schedule.kind=1f1b", "schedule.backward_p2=cooldown", "train.steps=1", "optimizer.momentum=0", "optimizer.lr=1"}
	after, before := toyRun(t, toyModel(t, nil, nil), sets...)
	loss := func(n *nudge) float64 {
		b, _ := toyRun(t, toyModel(t, n, nil), sets...)
		return b.losses[0]
	}
	for i, l := range toyModel(t, nil, nil).Layers {
		for j, p := range l.Params() {
			n := int(p.Len())
			gradient := func(k int) float64 { return float64(before[p.Name][k] - after.weights[p.Name][k]) }
			size := 0.0
			for k := range n {
				size = max(size, math.Abs(gradient(k)))
			}
			for k := 0; k < n; k += (n + 2) / 3 {
				const h = 1e-2
				d := (loss(&nudge{layer: i, param: j, elem: k, by: h}) - loss(&nudge{layer: i, param: j, elem: k, by: -h})) / (2 * h)
				if p.Name == "conv.6.b" { // its one row has no pixel beyond
					if d != 0 || size != 0 {
						t.Errorf("%s[%d]: %g, %g", p.Name, k, gradient(k), d)
					}
				} else if size == 0 || math.Abs(d-gradient(k)) > 5e-3*size+1e-5 {
					t.Errorf("%s[%d]: gradient %.6g (of at most %.3g), differences %.6g", p.Name, k, gradient(k), size, d)
				}
			}
		}
	}
}

// Every schedule and placement on three ranks gives the bits of one rank, and learns.
func TestToySchedules(t *testing.T) {
	want, _ := toyRun(t, toyModel(t, nil, nil), "parallel.stages=1", "schedule.kind=naive", "schedule.backward_p2=fused")
	if l := want.losses; l[len(l)-1] > 0.5*l[0] {
		t.Fatalf("it does not learn: %v", l)
	}
	for _, info := range schedule.Kinds() {
		for _, p2 := range []string{"native", "fused", "lagged", "cooldown", "end"} {
			for _, concat := range []string{"1", `"all"`} {
				if info.Async && p2 != "fused" || concat != "1" && p2 != "cooldown" || info.Bidirectional {
					continue // chimera's ranks are even in number
				}
				t.Run(fmt.Sprintf("%s/%s/%s", info.Name, p2, strings.Trim(concat, `"`)), func(t *testing.T) {
					t.Parallel()
					got, _ := toyRun(t, toyModel(t, nil, nil), "parallel.stages=3", "schedule.kind="+info.Name, "schedule.backward_p2="+p2, "schedule.concat="+concat)
					if info.Async { // trains on older weights
						if l := got.losses; l[len(l)-1] > 0.7*l[0] {
							t.Errorf("it does not learn: %v", l)
						}
						return
					}
					exact := concat == "1" && !info.Descending // else another order of sums
					near := func(a, b float64) bool { return a == b || !exact && math.Abs(a-b) <= 1e-5*math.Abs(b) }
					for i := range want.losses {
						if !near(got.losses[i], want.losses[i]) || !near(got.norms[i], want.norms[i]) {
							t.Errorf("step %d: loss %v and norm %v, want %v and %v", i+1, got.losses[i], got.norms[i], want.losses[i], want.norms[i])
						}
					}
					for name, w := range want.weights {
						if exact && !slices.Equal(got.weights[name], w) {
							t.Errorf("%s differs", name)
						}
					}
				})
			}
		}
	}
}

// A sum that I has made is added in the order of the micro-batches, joined or not: the same bits. And a layer
// is told the numbers of its micro-batches, over all replicas.
func TestToyMicroBatches(t *testing.T) {
	var mu sync.Mutex
	firsts := map[int]bool{}
	first := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		firsts[n] = true
	}
	sets := []string{"parallel.stages=3", "schedule.kind=1f1b", "schedule.backward_p2=end", "train.steps=1"}
	apart, _ := toyRun(t, toyModel(t, nil, first), sets...)
	if got := slices.Sorted(maps.Keys(firsts)); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("W of the micro-batches %v", got)
	}
	clear(firsts)
	joined, _ := toyRun(t, toyModel(t, nil, first), append(sets, `schedule.concat="all"`)...)
	for name, w := range apart.weights {
		if strings.HasSuffix(name, ".gain") && !slices.Equal(joined.weights[name], w) {
			t.Errorf("%s differs when W joins micro-batches", name)
		}
	}
	if got := slices.Sorted(maps.Keys(firsts)); !slices.Equal(got, []int{0}) {
		t.Errorf("joined W from %v", got)
	}
	clear(firsts)
	replicas, _ := toyRun(t, toyModel(t, nil, first), append(sets, "parallel.replicas=2", "schedule.microbatches=3")...)
	if d := math.Abs(replicas.norms[0] - apart.norms[0]); d > 1e-5*apart.norms[0] || replicas.losses[0] != apart.losses[0] {
		t.Errorf("two replicas: loss %v and norm %v, one has %v and %v", replicas.losses[0], replicas.norms[0], apart.losses[0], apart.norms[0])
	}
	if got := slices.Sorted(maps.Keys(firsts)); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("W of the micro-batches %v of two replicas", got)
	}
}
