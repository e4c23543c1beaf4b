package model

import "math"

// streamInit keeps the first values of parameters apart from other uses of the seed.
const streamInit = 1

// random returns words number 4·block … 4·block+3 of a stream. sub is what the
// stream counts beside elements: a parameter's index.
func random(seed int64, stream, sub uint32, block uint64) [4]uint32 {
	ctr := [4]uint32{uint32(block), uint32(block >> 32), sub, stream}
	return philox(ctr, [2]uint32{uint32(seed), uint32(uint64(seed) >> 32)})
}

// Initialise writes parameter p's first values to dst, p.Len() elements. index is the
// parameter's Owner index in the whole model: with seed and element number it
// decides each value, so that no cut of the model changes a bit.
func Initialise(dst []float32, p Param, seed int64, index int) {
	if p.Init.Std == 0 {
		for i := range dst {
			dst[i] = p.Init.Value
		}
		return
	}
	for i := 0; i < len(dst); i += 4 {
		z := normals(random(seed, streamInit, uint32(index), uint64(i)/4))
		for j := range min(4, len(dst)-i) {
			dst[i+j] = float32(p.Init.Std * z[j])
		}
	}
}

// normals turns four words into four standard normal numbers (Box and Muller,
// 1958). Half a unit keeps the logarithm finite; the largest is 6.8.
func normals(w [4]uint32) (z [4]float64) {
	for i := 0; i < 4; i += 2 {
		radius := math.Sqrt(-2 * math.Log((float64(w[i])+0.5)*0x1p-32))
		sin, cos := math.Sincos(2 * math.Pi * float64(w[i+1]) * 0x1p-32)
		z[i], z[i+1] = radius*cos, radius*sin
	}
	return z
}
