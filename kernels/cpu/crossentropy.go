package cpu

import (
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// CrossEntropyForward writes loss[i] = lse(logits[i]) − logits[i][target[i]] and lse[i].
func (d *Device) CrossEntropyForward(loss, lse, logits, targets kernels.Buffer, rows, vocab int) {
	const op = "CrossEntropyForward"
	vl, ve := f32(op, "loss", loss, rows), f32(op, "lse", lse, rows)
	vx, vt := actsOf(op, rows*vocab, "logits", logits), i32(op, "targets", targets, rows)
	if !d.idsInside(op, vt, vocab) {
		return
	}
	d.splitRows(rows, vocab, func(w *workerScratch, from, to int) {
		for i := from; i < to; i++ {
			x := vx.read(d, w.row(0, vocab), i*vocab, (i+1)*vocab)
			m := d.vec.max(x)
			e := logSum(m, d.vec.sumExp(x, m))
			ve[i] = float32(e)
			vl[i] = float32(e - float64(x[vt[i]]))
		}
	})
}

// CrossEntropyBackward writes dlogits = (softmax(logits) − onehot)·scale.
// dlogits may be logits itself.
func (d *Device) CrossEntropyBackward(dlogits, logits, lse, targets kernels.Buffer, rows, vocab int, scale float32) {
	const op = "CrossEntropyBackward"
	vd, ve := actsOf(op, rows*vocab, "dlogits", dlogits), f32(op, "lse", lse, rows)
	vx, vt := like(op, rows*vocab, "logits", logits, dlogits), i32(op, "targets", targets, rows)
	if !d.idsInside(op, vt, vocab) {
		return
	}
	d.splitRows(rows, vocab, func(w *workerScratch, from, to int) {
		for i := from; i < to; i++ {
			o := vd.room(w.row(1, vocab), i*vocab, (i+1)*vocab)
			d.vec.expScale(o, vx.read(d, w.row(0, vocab), i*vocab, (i+1)*vocab), ve[i], scale)
			o[vt[i]] -= scale
			vd.put(d, o, i*vocab)
		}
	})
}

// logSum returns m + log(s) in f64: losses near zero are differences of it.
func logSum(m, s float32) float64 { return float64(m) + math.Log(float64(s)) }
