package cpu

import "github.com/pipetrain/pipetrain/kernels"

// SwiGLUForward computes y = silu(g)·u (arXiv 2002.05202, eq. 6, without the
// products); gu is rows × 2·ffn, g first.
func (d *Device) SwiGLUForward(y, gu kernels.Buffer, rows, ffn int) {
	const op = "SwiGLUForward"
	vy, vgu := actsOf(op, rows*ffn, "y", y), like(op, rows*2*ffn, "gu", gu, y)
	d.splitRows(rows, ffn, func(w *workerScratch, from, to int) {
		for i := from; i < to; i++ {
			r := vgu.read(d, w.row(0, 2*ffn), i*2*ffn, (i+1)*2*ffn)
			v := vy.room(w.row(1, ffn), i*ffn, (i+1)*ffn)
			d.vec.swiglu(v, r[:ffn], r[ffn:])
			vy.put(d, v, i*ffn)
		}
	})
}

// SwiGLUBackward writes dgu from dy and gu: du = dy·silu(g),
// dg = dy·u·σ(g)·(1 + g·(1 − σ(g))). dgu may be gu itself.
func (d *Device) SwiGLUBackward(dgu, dy, gu kernels.Buffer, rows, ffn int) {
	const op = "SwiGLUBackward"
	vd, vdy := actsOf(op, rows*2*ffn, "dgu", dgu), like(op, rows*ffn, "dy", dy, dgu)
	vgu := like(op, rows*2*ffn, "gu", gu, dgu)
	d.splitRows(rows, ffn, func(w *workerScratch, from, to int) {
		for i := from; i < to; i++ {
			r := vgu.read(d, w.row(0, 2*ffn), i*2*ffn, (i+1)*2*ffn)
			o := vd.room(w.row(1, 2*ffn), i*2*ffn, (i+1)*2*ffn)
			d.vec.swigluGrad(o[:ffn], o[ffn:], vdy.read(d, w.row(2, ffn), i*ffn, (i+1)*ffn), r[:ffn], r[ffn:])
			vd.put(d, o, i*2*ffn)
		}
	})
}
