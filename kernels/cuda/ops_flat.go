package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
)

// Add computes dst = a + b; dst may be a or b.
func (d *Device) Add(dst, a, b kernels.Buffer) {
	const op = "Add"
	t := float(op, "dst", dst)
	if a.Len != dst.Len || b.Len != dst.Len {
		panic("cuda: Add: the buffers differ in length")
	}
	if dst.Empty() {
		return
	}
	d.args.Reset().Addr(want(op, "dst", dst, t, dst.Len)).Addr(want(op, "a", a, t, dst.Len)).Addr(want(op, "b", b, t, dst.Len)).Long(dst.Len)
	d.perform(op, func() error { return d.launch("add", t, d.flat(dst.Len, packOf(t))) })
}

// maxParts is how many blocks share a sum at most.
const maxParts = 2048

// Sum writes the sum of x, accumulated in f64 in a fixed order.
func (d *Device) Sum(out, x kernels.Buffer) { d.sum("Sum", "sum_parts", out, x) }

// SumSquares writes the sum of squares of x.
func (d *Device) SumSquares(out, x kernels.Buffer) { d.sum("SumSquares", "sum_square_parts", out, x) }

func (d *Device) sum(op, name string, out, x kernels.Buffer) {
	po, px := want(op, "out", out, kernels.F64, 1), f32(op, "x", x, x.Len)
	// Neither depends on the card: the order of the sum is the same on all.
	chunk := max(4096, ((x.Len+maxParts-1)/maxParts+3)/4*4)
	parts := int((x.Len + chunk - 1) / chunk)
	d.perform(op, func() error {
		scratch := uintptr(d.now.parts)
		if parts > 0 {
			d.args.Reset().Addr(scratch).Addr(px).Long(x.Len).Long(chunk)
			if err := d.launch(name, kernels.U8, grid{x: parts, threads: 256}); err != nil {
				return err
			}
		}
		d.args.Reset().Addr(po).Addr(scratch).Int(parts)
		return d.launch("sum_total", kernels.U8, grid{x: 1, threads: 256})
	})
}

// StepAdamW updates w, m, v from the gradient g (arXiv 1711.05101, algorithm 2,
// with decay scaled by the learning rate as PyTorch does).
func (d *Device) StepAdamW(w, g, m, v kernels.Buffer, p kernels.AdamW) {
	const op = "StepAdamW"
	n := w.Len
	if g.Len != n || m.Len != n || v.Len != n {
		panic("cuda: StepAdamW: the buffers differ in length")
	}
	if p.Step < 1 {
		panic(fmt.Sprintf("cuda: StepAdamW: step %d: steps count from 1", p.Step))
	}
	b1, b2, t := float64(p.Beta1), float64(p.Beta2), float64(p.Step)
	d.args.Reset().Addr(f32(op, "w", w, n)).Addr(f32(op, "g", g, n)).Addr(f32(op, "m", m, n)).Addr(f32(op, "v", v, n)).
		Addr(0).Long(n).Float(p.Beta1).Float(float32(1 - b1)).Float(p.Beta2).Float(float32(1 - b2)).Float(p.GradScale).
		Float(float32(float64(p.LR) / (1 - math.Pow(b1, t)))).Float(float32(1 / math.Sqrt(1-math.Pow(b2, t)))).
		Float(p.Eps).Float(float32(1 - float64(p.LR)*float64(p.WeightDecay)))
	d.step(op, "adamw", n)
}

// StepSGD updates w and the momentum buffer b, which is empty when momentum is 0.
func (d *Device) StepSGD(w, g, b kernels.Buffer, p kernels.SGD) {
	const op = "StepSGD"
	n := w.Len
	if g.Len != n || (b.Len != n && (p.Momentum != 0 || !b.Empty())) {
		panic("cuda: StepSGD: the buffers differ in length")
	}
	pb := uintptr(0)
	if p.Momentum != 0 {
		pb = f32(op, "b", b, n)
	}
	d.args.Reset().Addr(f32(op, "w", w, n)).Addr(f32(op, "g", g, n)).Addr(pb).Addr(0).Long(n).
		Float(p.LR).Float(p.Momentum).Float(p.WeightDecay).Float(p.GradScale)
	d.step(op, "sgd", n)
}

func (d *Device) step(op, name string, n int64) {
	if n > 0 {
		d.perform(op, func() error { return d.launch(name, kernels.U8, d.flat(n, 4)) })
	}
}

func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
