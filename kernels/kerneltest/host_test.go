package kerneltest_test

import (
	"encoding/binary"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

func host32(d kernels.Device, b kernels.Buffer) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(d.Host(b)))
}

func get64(d kernels.Device, b kernels.Buffer) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(d.Host(b)))
}

func put64(d kernels.Device, b kernels.Buffer, v float64) {
	binary.LittleEndian.PutUint64(d.Host(b), math.Float64bits(v))
}
