package cpu

import (
	"fmt"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// rotaryTable keeps cosines and sines of the positions seen so far, for one head
// width and base: a model has one of each.
type rotaryTable struct {
	headDim  int
	theta    float32
	seq      int
	cos, sin []float32 // seq × headDim/2
}

func (t *rotaryTable) grow(headDim int, theta float32, seq int) {
	if t.headDim == headDim && t.theta == theta && t.seq >= seq {
		return
	}
	half := headDim / 2
	*t = rotaryTable{headDim, theta, seq, make([]float32, seq*half), make([]float32, seq*half)}
	for i := range half {
		freq := math.Pow(float64(theta), -2*float64(i)/float64(headDim))
		for pos := range seq {
			s, c := math.Sincos(float64(pos) * freq)
			t.cos[pos*half+i], t.sin[pos*half+i] = float32(c), float32(s)
		}
	}
}

// Rotary turns pairs (x[i], x[i+headDim/2]) of the first heads of each row by
// (row mod seq)·theta^(−2i/headDim) (arXiv 2104.09864, eq. 34, rotate-half order).
func (d *Device) Rotary(x kernels.Buffer, rows, seq, heads, headDim, ld int, theta float32, inverse bool) {
	const op = "Rotary"
	if headDim <= 0 || headDim%2 != 0 || heads*headDim > ld || seq <= 0 {
		panic(fmt.Sprintf("cpu: Rotary: heads %d of width %d in rows of stride %d, seq %d: want an even width that fits", heads, headDim, ld, seq))
	}
	if rows == 0 || heads == 0 {
		return
	}
	v := actsOf(op, (rows-1)*ld+heads*headDim, "x", x)
	d.rotary.grow(headDim, theta, seq)
	half := headDim / 2
	turn := d.vec.rotate
	if inverse {
		turn = d.vec.rotateBack
	}
	d.splitRows(rows, heads*headDim, func(w *workerScratch, from, to int) {
		for i := from; i < to; i++ {
			pos := i % seq
			cos, sin := d.rotary.cos[pos*half:(pos+1)*half], d.rotary.sin[pos*half:(pos+1)*half]
			all := v.read(d, w.row(0, heads*headDim), i*ld, i*ld+heads*headDim)
			for h := range heads {
				a := all[h*headDim:]
				turn(a[:half], a[half:headDim], cos, sin)
			}
			v.put(d, all, i*ld)
		}
	})
}
