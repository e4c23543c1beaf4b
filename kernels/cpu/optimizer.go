package cpu

import (
	"fmt"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// adamParams are the numbers of one AdamW step as the kernels want them, all
// f32 and in this order, which the assembly knows.
type adamParams struct {
	beta1, oneBeta1, beta2, oneBeta2 float32
	gradScale                        float32
	step                             float32 // lr / (1 − β1^t)
	invSqrtBias2                     float32 // 1 / sqrt(1 − β2^t)
	eps                              float32
	keep                             float32 // 1 − lr·decay
}

// StepAdamW updates w, m, v from the gradient g (arXiv 1711.05101, algorithm 2,
// with decay scaled by the learning rate as PyTorch does).
func (d *Device) StepAdamW(w, g, m, v, low kernels.Buffer, p kernels.AdamW) {
	const op = "StepAdamW"
	n := int(w.Len)
	if g.Len != w.Len || m.Len != w.Len || v.Len != w.Len {
		panic("cpu: StepAdamW: the buffers differ in length")
	}
	if p.Step < 1 {
		panic(fmt.Sprintf("cpu: StepAdamW: step %d: steps count from 1", p.Step))
	}
	vw, vg, vm, vv := f32(op, "w", w, n), f32(op, "g", g, n), f32(op, "m", m, n), f32(op, "v", v, n)
	b1, b2, t := float64(p.Beta1), float64(p.Beta2), float64(p.Step)
	a := adamParams{
		beta1: p.Beta1, oneBeta1: float32(1 - b1), beta2: p.Beta2, oneBeta2: float32(1 - b2),
		gradScale:    p.GradScale,
		step:         float32(float64(p.LR) / (1 - math.Pow(b1, t))),
		invSqrtBias2: float32(1 / math.Sqrt(1-math.Pow(b2, t))),
		eps:          p.Eps,
		keep:         float32(1 - float64(p.LR)*float64(p.WeightDecay)),
	}
	round := rounder(op, d.vec.narrow, low, n)
	d.split(n, 16384, func(_ *workerScratch, i, j int) {
		d.vec.adamw(vw[i:j], vg[i:j], vm[i:j], vv[i:j], &a)
		round(vw, i, j)
	})
}

// sgdParams are the numbers of one SGD step, in the order the assembly knows.
type sgdParams struct{ gradScale, decay, momentum, minusLR float32 }

// StepSGD updates w and the momentum buffer b, which is empty when momentum is 0.
func (d *Device) StepSGD(w, g, b, low kernels.Buffer, p kernels.SGD) {
	const op = "StepSGD"
	n := int(w.Len)
	if g.Len != w.Len || (b.Len != w.Len && (p.Momentum != 0 || !b.Empty())) {
		panic("cpu: StepSGD: the buffers differ in length")
	}
	vw, vg := f32(op, "w", w, n), f32(op, "g", g, n)
	a := sgdParams{p.GradScale, p.WeightDecay, p.Momentum, -p.LR}
	round := rounder(op, d.vec.narrow, low, n)
	if p.Momentum == 0 {
		d.split(n, 16384, func(_ *workerScratch, i, j int) {
			d.vec.sgdPlain(vw[i:j], vg[i:j], &a)
			round(vw, i, j)
		})
		return
	}
	vb := f32(op, "b", b, n)
	d.split(n, 16384, func(_ *workerScratch, i, j int) {
		d.vec.sgd(vw[i:j], vg[i:j], vb[i:j], &a)
		round(vw, i, j)
	})
}

// rounder returns what writes elements [i, j) of w rounded into low, which is empty or has n.
func rounder(op string, narrow func([]uint16, []float32), low kernels.Buffer, n int) func(w []float32, i, j int) {
	if low.Empty() {
		return func([]float32, int, int) {}
	}
	if low.Len != int64(n) {
		panic("cpu: " + op + ": low differs in length")
	}
	v := bf16(op, "low", low, n)
	return func(w []float32, i, j int) { narrow(v[i:j], w[i:j]) }
}
