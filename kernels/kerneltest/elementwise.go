package kerneltest

import (
	"encoding/binary"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

var lengths = []int{1, 2, 15, 16, 17, 63, 64, 1000, 16384, 33001}

var elementwiseCases = []Case{
	{Name: "Add", bothTypes: true, run: func(c *check) {
		for _, n := range lengths {
			c.begin("%d elements", n)
			a, b, dst := c.inT("a", c.normal(n, 1)), c.inT("b", c.normal(n, 1)), c.outT("dst", n)
			want := make([]float64, n)
			for i := range want {
				want[i] = float64(a.data[i] + b.data[i])
				if c.t == kernels.BF16 { // which is exact too: the sum of two bf16 numbers is rounded once
					want[i] = float64(fromBF16(binary.NativeEndian.AppendUint16(nil, toBF16(want[i])))[0])
				}
			}
			c.d.Add(dst.buf, a.buf, b.buf)
			c.equal(dst, want, tolerance{})
			onA := c.inOutT("dst = a", a.data)
			c.d.Add(onA.buf, onA.buf, b.buf)
			c.equal(onA, want, tolerance{})
			onB := c.inOutT("dst = b", b.data)
			c.d.Add(onB.buf, a.buf, onB.buf)
			c.equal(onB, want, tolerance{})
			c.end()
		}
	}},
	{Name: "Sum", run: func(c *check) {
		checkSum(c, func(out, x kernels.Buffer) { c.d.Sum(out, x) }, func(v float64) float64 { return v })
	}},
	{Name: "SumSquares", run: func(c *check) {
		checkSum(c, func(out, x kernels.Buffer) { c.d.SumSquares(out, x) }, func(v float64) float64 { return v * v })
	}},
}

func checkSum(c *check, sum func(out, x kernels.Buffer), f func(float64) float64) {
	for _, n := range append([]int{0}, lengths...) {
		c.begin("%d elements", n)
		x, out := c.in("x", c.normal(n, 1)), c.outF64("out", 1)
		if n > 2 {
			// Lost when the sum is not f64 all the way.
			big := append([]float32(nil), x.data...)
			big[0], big[n-1] = 1<<24, -(1 << 24)
			x = c.in("x", big)
		}
		sum(out.buf, x.buf)
		// Compensated (Neumaier), as the plain sum would be no more exact than the device's.
		want, lost, size := 0.0, 0.0, 0.0
		for _, v := range x.data {
			y := f(float64(v))
			s := want + y
			if math.Abs(want) >= math.Abs(y) {
				lost += want - s + y
			} else {
				lost += y - s + want
			}
			want = s
			size += math.Abs(y)
		}
		want += lost
		got := math.Float64frombits(binary.LittleEndian.Uint64(c.raw(out.buf)))
		if !(math.Abs(got-want) <= 1e-13*size) {
			c.failf("got %v, want %v", got, want)
		}
		c.end()
	}
}
