package cpu

import (
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
)

// acts is a buffer of activations or weights, f32 or bf16. Operations compute in
// f32: they see a range of a bf16 buffer widened into a thread's scratch, and what
// they write there is rounded when it is complete. An f32 buffer is worked on in place.
type acts struct {
	full []float32
	low  []uint16 // of a bf16 buffer; full is nil then
}

// actsOf returns the first n elements of b.
func actsOf(op string, n int, name string, b kernels.Buffer) acts {
	switch b.Type {
	case kernels.BF16:
		return acts{low: bf16(op, name, b, n)}
	case kernels.F32:
		return acts{full: f32(op, name, b, n)}
	}
	if b.Empty() && n == 0 {
		return acts{}
	}
	panic(fmt.Sprintf("cpu: %s: %s is %s, want f32 or bf16", op, name, b.Type))
}

// like is actsOf for a buffer that must have the type of t.
func like(op string, n int, name string, b, t kernels.Buffer) acts {
	if b.Type != t.Type {
		panic(fmt.Sprintf("cpu: %s: %s is %s where another buffer is %s", op, name, b.Type, t.Type))
	}
	return actsOf(op, n, name, b)
}

// read returns elements [i, j) in f32, in the scratch given where they are bf16.
func (a acts) read(d *Device, scratch []float32, i, j int) []float32 {
	if a.low == nil {
		return a.full[i:j]
	}
	d.vec.widen(scratch[:j-i], a.low[i:j])
	return scratch[:j-i]
}

// room returns where to write elements [i, j): in place, or in the scratch, which
// put then rounds.
func (a acts) room(scratch []float32, i, j int) []float32 {
	if a.low == nil {
		return a.full[i:j]
	}
	return scratch[:j-i]
}

// put ends the writing of elements [i, …) that v has, which room or read returned.
func (a acts) put(d *Device, v []float32, i int) {
	if a.low != nil {
		d.vec.narrow(a.low[i:i+len(v)], v)
	}
}

// lowBlock is how many elements of flat bf16 buffers are widened at a time: few
// enough for the first cache.
const lowBlock = 2048

// flat runs f over [i, j) in pieces for which scratch is there: all at once where
// nothing is bf16.
func (a acts) flat(i, j int, f func(i, j int)) {
	if a.low == nil {
		f(i, j)
		return
	}
	for ; i < j; i += lowBlock {
		f(i, min(i+lowBlock, j))
	}
}

// row returns number k of the thread's rows of scratch, n elements long.
func (w *workerScratch) row(k, n int) []float32 {
	w.rows[k] = grow(w.rows[k], n)
	return w.rows[k]
}
