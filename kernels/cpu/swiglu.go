package cpu

import "github.com/pipetrain/pipetrain/kernels"

// SwiGLUForward computes y = silu(g)·u (arXiv 2002.05202, eq. 6, without the
// products); gu is rows × 2·ffn, g first.
func (d *Device) SwiGLUForward(y, gu kernels.Buffer, rows, ffn int) {
	const op = "SwiGLUForward"
	vy, vgu := f32(op, "y", y, rows*ffn), f32(op, "gu", gu, rows*2*ffn)
	d.splitRows(rows, ffn, func(from, to int) {
		for i := from; i < to; i++ {
			r := vgu[i*2*ffn : (i+1)*2*ffn]
			d.vec.swiglu(vy[i*ffn:(i+1)*ffn], r[:ffn], r[ffn:])
		}
	})
}

// SwiGLUBackward writes dgu from dy and gu: du = dy·silu(g),
// dg = dy·u·σ(g)·(1 + g·(1 − σ(g))). dgu may be gu itself.
func (d *Device) SwiGLUBackward(dgu, dy, gu kernels.Buffer, rows, ffn int) {
	const op = "SwiGLUBackward"
	vd, vdy := f32(op, "dgu", dgu, rows*2*ffn), f32(op, "dy", dy, rows*ffn)
	vgu := f32(op, "gu", gu, rows*2*ffn)
	d.splitRows(rows, ffn, func(from, to int) {
		for i := from; i < to; i++ {
			r, o := vgu[i*2*ffn:(i+1)*2*ffn], vd[i*2*ffn:(i+1)*2*ffn]
			d.vec.swigluGrad(o[:ffn], o[ffn:], vdy[i*ffn:(i+1)*ffn], r[:ffn], r[ffn:])
		}
	})
}
