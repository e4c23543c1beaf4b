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
	t, n := float(op, "dst", dst), dst.Len
	d.args.Reset().Addr(dst.Addr).Addr(exactly(op, "a", a, t, n)).Addr(exactly(op, "b", b, t, n)).Long(n)
	d.each(op, "add", t, n, packOf(t))
}

// GELUForward computes y = x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
func (d *Device) GELUForward(y, x kernels.Buffer) {
	const op = "GELUForward"
	t, n := float(op, "x", x), x.Len
	d.args.Reset().Addr(exactly(op, "y", y, t, n)).Addr(x.Addr).Long(n)
	d.each(op, "gelu_forward", t, n, packOf(t))
}

// GELUBackward writes dx = dy · (that function's derivative at x). dx may be x itself.
func (d *Device) GELUBackward(dx, dy, x kernels.Buffer) {
	const op = "GELUBackward"
	t, n := float(op, "x", x), x.Len
	d.args.Reset().Addr(exactly(op, "dx", dx, t, n)).Addr(exactly(op, "dy", dy, t, n)).Addr(x.Addr).Long(n)
	d.each(op, "gelu_backward", t, n, packOf(t))
}

// Convert writes src's values as dst's type: F32 to BF16, or BF16 to F32.
func (d *Device) Convert(dst, src kernels.Buffer) {
	const op = "Convert"
	name, to := "convert_bf16", kernels.F32
	if float(op, "src", src) == kernels.F32 {
		name, to = "convert_f32", kernels.BF16
	}
	d.args.Reset().Addr(exactly(op, "dst", dst, to, src.Len)).Addr(src.Addr).Long(src.Len)
	d.each(op, name, to, src.Len, 8)
}

// exactly is want for a buffer of that length.
func exactly(op, name string, b kernels.Buffer, t kernels.DType, n int64) uintptr {
	if b.Len != n {
		panic(fmt.Sprintf("cuda: %s: %s has %d elements, want %d", op, name, b.Len, n))
	}
	return want(op, name, b, t, n)
}

// each launches a kernel over n elements, of which a thread takes pack at a time.
func (d *Device) each(op, name string, t kernels.DType, n int64, pack int) {
	if n > 0 {
		d.perform(op, func() error { return d.launch(name, t, d.flat(n, pack)) })
	}
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
		return d.scratch(8*maxParts, func(scratch uintptr) error {
			if parts > 0 {
				d.args.Reset().Addr(scratch).Addr(px).Long(x.Len).Long(chunk)
				if err := d.launch(name, kernels.U8, grid{x: parts, threads: 256}); err != nil {
					return err
				}
			}
			d.args.Reset().Addr(po).Addr(scratch).Int(parts)
			return d.launch("sum_total", kernels.U8, grid{x: 1, threads: 256})
		})
	})
}

// StepAdamW updates w, m, v from the gradient g (arXiv 1711.05101, algorithm 2,
// with decay scaled by the learning rate as PyTorch does).
func (d *Device) StepAdamW(w, g, m, v, low kernels.Buffer, p kernels.AdamW) {
	const op = "StepAdamW"
	n := w.Len
	if p.Step < 1 {
		panic(fmt.Sprintf("cuda: StepAdamW: step %d: steps count from 1", p.Step))
	}
	b1, b2, t := float64(p.Beta1), float64(p.Beta2), float64(p.Step)
	d.args.Reset().Addr(f32(op, "w", w, n)).Addr(exactly(op, "g", g, kernels.F32, n)).Addr(exactly(op, "m", m, kernels.F32, n)).Addr(exactly(op, "v", v, kernels.F32, n)).
		Addr(rounded(op, low, n)).Long(n).Float(p.Beta1).Float(float32(1 - b1)).Float(p.Beta2).Float(float32(1 - b2)).Float(p.GradScale).
		Float(float32(float64(p.LR) / (1 - math.Pow(b1, t)))).Float(float32(1 / math.Sqrt(1-math.Pow(b2, t)))).
		Float(p.Eps).Float(float32(1 - float64(p.LR)*float64(p.WeightDecay)))
	d.each(op, "adamw", kernels.U8, n, 4)
}

// StepSGD updates w and the momentum buffer b, which is empty when momentum is 0.
func (d *Device) StepSGD(w, g, b, low kernels.Buffer, p kernels.SGD) {
	const op = "StepSGD"
	n := w.Len
	pb := uintptr(0)
	if p.Momentum != 0 {
		pb = exactly(op, "b", b, kernels.F32, n)
	}
	d.args.Reset().Addr(f32(op, "w", w, n)).Addr(exactly(op, "g", g, kernels.F32, n)).Addr(pb).Addr(rounded(op, low, n)).Long(n).
		Float(p.LR).Float(p.Momentum).Float(p.WeightDecay).Float(p.GradScale)
	d.each(op, "sgd", kernels.U8, n, 4)
}

// rounded returns where an update writes the new weights as bf16, 0 for nowhere.
func rounded(op string, low kernels.Buffer, n int64) uintptr {
	if low.Empty() {
		return 0
	}
	return exactly(op, "low", low, kernels.BF16, n)
}

func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
