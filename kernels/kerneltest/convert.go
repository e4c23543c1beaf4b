package kerneltest

import (
	"encoding/binary"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

var convertCases = []Case{
	{Name: "Convert/ToBF16", run: func(c *check) {
		for _, n := range lengths {
			c.begin("%d elements", n)
			v := c.normal(n, 1)
			for i := range v {
				v[i] = float32(math.Ldexp(float64(v[i]), c.r.IntN(280)-150))
			}
			copy(v, convertSpecial[:min(n, len(convertSpecial))])
			src, dst := c.in("src", v), c.put("dst", poisoned(n), kernels.BF16, output)
			c.d.Convert(dst.buf, src.buf)
			got := c.raw(dst.buf)
			for i, x := range v {
				bits, want := binary.NativeEndian.Uint16(got[2*i:]), toBF16(float64(x))
				if x != x && bits&0x7fff > 0x7f80 || x == x && bits == want {
					continue
				}
				c.failf("dst[%d] = %#04x, want %#04x, of %g (%#08x)", i, bits, want, x, math.Float32bits(x))
				break
			}
			c.end()
		}
	}},
	{Name: "Convert/ToF32", run: func(c *check) {
		c.begin("all numbers")
		all := make([]float32, 1<<16)
		for i := range all {
			all[i] = math.Float32frombits(uint32(i) << 16)
		}
		src, dst := c.put("src", all, kernels.BF16, input), c.out("dst", len(all))
		c.d.Convert(dst.buf, src.buf)
		for i, x := range c.read(dst) {
			if want := src.data[i]; math.Float32bits(x) != math.Float32bits(want) && !(x != x && want != want) {
				c.failf("dst[%d] = %g, want %g", i, x, want)
				break
			}
		}
		c.end()
	}},
}

// Ties both ways, the carry into the exponent, the last number before infinity
// and the first after, denormals, and a NaN whose only bits are those cut off.
var convertSpecial = []float32{
	math.Float32frombits(0x3f808000), math.Float32frombits(0x3f818000), math.Float32frombits(0x3f808001),
	math.Float32frombits(0xbf80ffff), math.Float32frombits(0x3fffffff), math.Float32frombits(0x7f7f7fff),
	math.Float32frombits(0x7f7f8000), math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)),
	0, float32(math.Copysign(0, -1)), 1e-40, -1e-45, math.Float32frombits(0x7f800001), math.Float32frombits(0xffffffff),
}
