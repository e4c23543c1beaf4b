package kerneltest

import (
	"encoding/binary"
	"math"
)

// toBF16 rounds to nearest even by arithmetic rather than on the bits; the poison
// keeps its upper half.
func toBF16(x float64) uint16 {
	switch {
	case math.Float32bits(float32(x))&^quiet == poisonBits&^quiet: // arithmetic makes it a quiet NaN
		return poisonBits >> 16
	case x != x:
		return 0x7fc0
	}
	_, exp := math.Frexp(x)
	unit := math.Ldexp(1, max(exp, -125)-8) // of the last of 8 bits, or of denormals
	y := math.RoundToEven(x/unit) * unit
	if math.IsInf(x, 0) {
		y = x
	}
	return uint16(math.Float32bits(float32(y)) >> 16) // beyond the largest float32(y) is infinite
}

const quiet = 1 << 22

// fromBF16 returns the values of bytes as they lie on a device.
func fromBF16(b []byte) []float32 {
	v := make([]float32, len(b)/2)
	for i := range v {
		v[i] = math.Float32frombits(uint32(binary.NativeEndian.Uint16(b[2*i:])) << 16)
	}
	return v
}
