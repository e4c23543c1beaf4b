package kerneltest

import (
	"bytes"

	"github.com/pipetrain/pipetrain/kernels"
)

var memoryCases = []Case{
	{Name: "Memory/Alloc", run: checkAlloc},
	{Name: "Memory/Copy", run: checkCopy},
}

func checkAlloc(c *check) {
	var all []kernels.Buffer
	for _, n := range []int64{1, 4, 255, 256, 257, 4096, 1<<20 + 1} {
		c.begin("Alloc(%d)", n)
		b, err := c.d.Alloc(n)
		if err != nil {
			c.failf("%v", err)
			return
		}
		all = append(all, b)
		if b.Type != kernels.U8 || b.Len != n {
			c.failf("gave %d elements of %s", b.Len, b.Type)
		}
		if b.Addr%256 != 0 {
			c.failf("address %#x is not aligned to 256 bytes", b.Addr)
		}
		for _, x := range c.raw(b) {
			if x != 0 {
				c.failf("memory is not zero")
				break
			}
		}
		c.d.CopyIn(b, bytes.Repeat([]byte{0xa5}, int(n)))
		if h := c.d.Host(b); h != nil && (int64(len(h)) != n || h[n-1] != 0xa5) {
			c.failf("Host does not show what CopyIn wrote")
		}
	}
	for _, b := range all {
		if x := c.raw(b); x[0] != 0xa5 || x[len(x)-1] != 0xa5 {
			c.failf("a later Alloc changed %d bytes given before", b.Len)
		}
		c.d.Free(b)
	}
	c.begin("Alloc(256) after Free")
	b, err := c.d.Alloc(256)
	if err != nil {
		c.failf("%v", err)
		return
	}
	if c.raw(b)[17] != 0 {
		c.failf("memory is not zero")
	}
	c.d.Free(b)
}

func checkCopy(c *check) {
	for _, n := range []int{1, 3, 64, 1000, 70001} {
		c.begin("%d elements", n)
		v := c.normal(n, 1)
		src, dst, zero := c.in("src", v), c.out("dst", n), c.out("zero", n)
		c.d.Copy(dst.buf, src.buf)
		c.d.Zero(zero.buf)
		c.equal(dst, wide(v), tolerance{})
		c.equal(zero, make([]float64, n), tolerance{})
		part := c.out("part", n+2)
		c.d.Copy(part.buf.Slice(1, int64(n)), src.buf)
		got := c.read(part)
		if got[1] != v[0] || got[n] != v[n-1] || got[0] == got[0] || got[n+1] == got[n+1] {
			c.failf("Copy into a slice wrote other elements")
		}
		c.end()
	}
}
