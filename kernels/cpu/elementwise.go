package cpu

import "github.com/pipetrain/pipetrain/kernels"

// Add computes dst = a + b; dst may be a or b.
func (d *Device) Add(dst, a, b kernels.Buffer) {
	const op = "Add"
	n := int(dst.Len)
	if a.Len != dst.Len || b.Len != dst.Len {
		panic("cpu: Add: the three buffers differ in length")
	}
	vd, va, vb := actsOf(op, n, "dst", dst), like(op, n, "a", a, dst), like(op, n, "b", b, dst)
	d.split(n, 16384, func(w *workerScratch, from, to int) {
		vd.flat(from, to, func(i, j int) {
			v := vd.room(w.row(0, lowBlock), i, j)
			d.vec.add(v, va.read(d, w.row(1, lowBlock), i, j), vb.read(d, w.row(2, lowBlock), i, j))
			vd.put(d, v, i)
		})
	})
}

// sumChunk is the length whose partial sum is formed by itself; the partial sums
// are added in order, so that the result does not depend on the threads.
const sumChunk = 16384

// Sum writes Σ x into the F64 out, accumulated in f64.
func (d *Device) Sum(out, x kernels.Buffer) { d.reduce("Sum", out, x, d.vec.sum) }

// SumSquares writes Σ x² into the F64 out, accumulated in f64.
func (d *Device) SumSquares(out, x kernels.Buffer) { d.reduce("SumSquares", out, x, d.vec.sumSquares) }

func (d *Device) reduce(op string, out, x kernels.Buffer, partial func([]float32) float64) {
	n := int(x.Len)
	vo, vx := f64(op, "out", out, 1), f32(op, "x", x, n)
	chunks := (n + sumChunk - 1) / sumChunk
	if cap(d.work[0].partial) < chunks {
		d.work[0].partial = make([]float64, chunks)
	}
	p := d.work[0].partial[:chunks]
	d.split(chunks, 4, func(_ *workerScratch, from, to int) {
		for c := from; c < to; c++ {
			p[c] = partial(vx[c*sumChunk : min(n, (c+1)*sumChunk)])
		}
	})
	total := 0.0
	for _, s := range p {
		total += s
	}
	vo[0] = total
}
