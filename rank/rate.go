package rank

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// stepFLOPs returns the operations of a rank's F, I and W of one step, as the layers
// count them: the optimizer and recomputation are none of the model's.
func (tr *Trainer) stepFLOPs() int64 {
	var n int64
	w := tr.work
	for _, op := range tr.m.program {
		if !op.Kind.IsCompute() {
			continue
		}
		shape := w.Shape.Times(op.Microbatches())
		flops := func(p model.Pass) int64 { return w.Model.FLOPsOf(w.Cut[op.Stage], p, shape) }
		switch op.Kind {
		case schedule.Forward:
			n += flops(model.PassForward)
		case schedule.BackwardInput:
			n += flops(model.PassInput)
		case schedule.BackwardWeight:
			n += flops(model.PassWeight)
		case schedule.Backward:
			n += flops(model.PassInput) + flops(model.PassWeight)
		}
	}
	return n
}

// Products that the matrix rate is measured by: from so small on, doubled until one takes
// long enough to time, up to so large.
const (
	rateFrom  = 256
	rateTo    = 8192
	rateTime  = 2 * time.Millisecond
	rateTimes = 3
)

// matrixRate measures the FLOP/s of a large product of n × n matrices of type t on the device: what
// a utilisation is a share of. 0 where there is no memory for it left.
func matrixRate(dev kernels.Device, t kernels.DType) float64 {
	for n := rateFrom; ; n *= 2 {
		took := product(dev, n, t)
		if took == 0 {
			return 0
		}
		if took < rateTime && n < rateTo {
			continue
		}
		for range rateTimes - 1 {
			took = min(took, product(dev, n, t))
		}
		return 2 * float64(n) * float64(n) * float64(n) / took.Seconds()
	}
}

// ratePattern is how many random values there are before they repeat.
const ratePattern = 1 << 16

// fill writes random values: products of zeros take less power, and a GPU makes more of them in a second.
func fill(dev kernels.Device, to kernels.Buffer) {
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for range min(to.Len, ratePattern) {
		bits := math.Float32bits(float32(r.NormFloat64()))
		if to.Type == kernels.BF16 {
			b = binary.NativeEndian.AppendUint16(b, uint16(bits>>16))
		} else {
			b = binary.NativeEndian.AppendUint32(b, bits)
		}
	}
	done := min(to.Len, ratePattern)
	dev.CopyIn(to.Slice(0, done), b)
	for done < to.Len {
		n := min(done, to.Len-done)
		dev.Copy(to.Slice(done, n), to.Slice(0, n))
		done += n
	}
}

// product times one product, after one that warms up; 0 where there is no memory for it.
func product(dev kernels.Device, n int, t kernels.DType) (took time.Duration) {
	bytes := int64(n) * int64(n) * t.Size()
	m, err := dev.Alloc(3 * bytes)
	if err != nil {
		return 0
	}
	defer dev.Free(m)
	part := func(i int64) kernels.Buffer { return m.Slice(i*bytes, bytes).As(t) }
	fill(dev, m.Slice(0, 2*bytes).As(t))
	for range 2 {
		if dev.Sync() != nil {
			return 0
		}
		start := time.Now()
		dev.Gemm(false, false, n, n, n, 1, part(0), n, part(1), n, 0, part(2), n)
		if dev.Sync() != nil {
			return 0
		}
		took = time.Since(start)
	}
	return max(took, 1)
}
