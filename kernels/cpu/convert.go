package cpu

import (
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// Convert writes src's values as dst's type, F32 or BF16.
func (d *Device) Convert(dst, src kernels.Buffer) {
	const op = "Convert"
	n := int(src.Len)
	if dst.Len != src.Len {
		panic("cpu: Convert: the buffers differ in length")
	}
	if src.Type == kernels.BF16 {
		vd, vs := f32(op, "dst", dst, n), bf16(op, "src", src, n)
		d.split(n, 16384, func(_ *workerScratch, i, j int) { d.vec.widen(vd[i:j], vs[i:j]) })
		return
	}
	vd, vs := bf16(op, "dst", dst, n), f32(op, "src", src, n)
	d.split(n, 16384, func(_ *workerScratch, i, j int) { d.vec.narrow(vd[i:j], vs[i:j]) })
}

// widenGo writes bf16 numbers as f32, which is exact.
func widenGo(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i, v := range src {
		dst[i] = math.Float32frombits(uint32(v) << 16)
	}
}

// narrowGo rounds f32 numbers to bf16.
func narrowGo(dst []uint16, src []float32) {
	src = src[:len(dst)]
	for i, v := range src {
		dst[i] = roundBF16(v)
	}
}

// roundBF16 rounds to nearest even; the carry out of the largest number gives
// infinity. A NaN is made a quiet one, as rounding could clear its last set bit.
func roundBF16(v float32) uint16 {
	b := math.Float32bits(v)
	if v != v {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
