package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pipetrain/pipetrain/kernels"
)

// check is one run of a case on one device.
type check struct {
	d       kernels.Device
	r       *rand.Rand
	pick    *rand.Rand           // for slopes alone, which only the first run has
	again   bool                 // not the first run of the case
	offset  int                  // elements by which buffers are off the device's alignment
	shape   string               // for messages
	memo    map[string][]float64 // references, the same for all runs of a case
	live    []*operand
	errs    []error
	results []result
	// expectFailure: an operation failed on purpose, so Close may return it.
	expectFailure bool
}

// result is an output, kept to compare with other runs.
type result struct {
	what string
	bits []uint32
}

// operand is a buffer between two guard bands.
type operand struct {
	name  string
	buf   kernels.Buffer
	whole kernels.Buffer
	data  []float32 // what was written before the operation
	ints  []int32
	state int
}

const (
	input  = iota // must come back as it was
	output        // checked against a reference
	scratch
)

// guard is the length of a guard band in elements.
const guard = 96

// Two NaNs that arithmetic does not produce, so that they tell what was touched.
const (
	guardBits  = 0x7fa5a5a5
	poisonBits = 0x7fbadbad
)

var poison = math.Float32frombits(poisonBits)

func (c *check) failf(format string, args ...any) {
	if len(c.errs) < 5 {
		c.errs = append(c.errs, fmt.Errorf(c.shape+format, args...))
	}
}

// protect turns a panic of the device into a failure.
func (c *check) protect(f func()) {
	defer func() {
		if r := recover(); r != nil {
			c.failf("panic: %v", r)
		}
	}()
	f()
}

// begin names a shape for messages.
func (c *check) begin(format string, args ...any) {
	c.shape = fmt.Sprintf(format, args...) + ": "
}

// once computes a costly reference in the first run of a case and keeps it for
// the others, which have the same inputs.
func (c *check) once(what string, f func() []float64) []float64 {
	v, ok := c.memo[c.shape+what]
	if !ok {
		v = f()
		c.memo[c.shape+what] = v
	}
	return v
}

func (c *check) place(o *operand, n int, t kernels.DType, put func(b []byte)) *operand {
	size := int(t.Size())
	pad := guard + c.offset
	raw := make([]byte, (pad+n+guard)*size)
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.LittleEndian.PutUint32(raw[i:], guardBits)
	}
	put(raw[pad*size : (pad+n)*size])
	w, err := c.d.Alloc(int64(len(raw)))
	if err != nil {
		panic(err)
	}
	c.d.CopyIn(w, raw)
	o.whole = w
	o.buf = w.As(t).Slice(int64(pad), int64(n))
	c.live = append(c.live, o)
	return o
}

// in places values that the operation must not change.
func (c *check) in(name string, v []float32) *operand {
	return c.place(&operand{name: name, data: v, state: input}, len(v), kernels.F32, putF32(v))
}

// inOut places values that the operation changes.
func (c *check) inOut(name string, v []float32) *operand {
	o := c.in(name, v)
	o.state = output
	return o
}

// ids places I32 values.
func (c *check) ids(name string, v []int32) *operand {
	return c.place(&operand{name: name, ints: v, state: input}, len(v), kernels.I32, func(b []byte) {
		for i, x := range v {
			binary.LittleEndian.PutUint32(b[i*4:], uint32(x))
		}
	})
}

// out places an output of n poisoned elements.
func (c *check) out(name string, n int) *operand {
	v := make([]float32, n)
	for i := range v {
		v[i] = poison
	}
	return c.inOut(name, v)
}

// outF64 places a poisoned F64 output.
func (c *check) outF64(name string, n int) *operand {
	return c.place(&operand{name: name, state: output}, n, kernels.F64, func(b []byte) {
		for i := range b {
			b[i] = 0xff
		}
	})
}

// work places scratch whose contents after the operation do not matter.
func (c *check) work(n int64) *operand {
	o := c.out("work", int(n))
	o.state = scratch
	return o
}

func putF32(v []float32) func([]byte) {
	return func(b []byte) {
		for i, x := range v {
			binary.LittleEndian.PutUint32(b[i*4:], math.Float32bits(x))
		}
	}
}

func (c *check) raw(b kernels.Buffer) []byte {
	v := make([]byte, b.Bytes())
	c.d.CopyOut(v, b)
	return v
}

// read returns an operand's values.
func (c *check) read(o *operand) []float32 {
	b := c.raw(o.buf)
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[i*4:]))
	}
	return v
}

// end checks guards and inputs, keeps the outputs for comparison and frees all.
func (c *check) end() {
	if err := c.d.Sync(); err != nil {
		c.failf("Sync: %v", err)
	}
	for _, o := range c.live {
		whole := c.raw(o.whole)
		size := int(o.buf.Type.Size())
		from := (guard + c.offset) * size
		to := from + int(o.buf.Len)*size
		for i := 0; i+4 <= len(whole); i += 4 {
			if (i < from || i >= to) && binary.LittleEndian.Uint32(whole[i:]) != guardBits {
				c.failf("%s: written outside: byte %d, the buffer is [0, %d)", o.name, i-from, to-from)
				break
			}
		}
		bits := make([]uint32, (to-from)/4)
		for i := range bits {
			bits[i] = binary.LittleEndian.Uint32(whole[from+i*4:])
		}
		switch o.state {
		case output:
			c.results = append(c.results, result{c.shape + o.name, bits})
		case input:
			for i, b := range bits {
				if o.ints != nil && b != uint32(o.ints[i]) || o.data != nil && b != math.Float32bits(o.data[i]) {
					c.failf("%s: an input was changed at element %d", o.name, i)
					break
				}
			}
		}
		c.d.Free(o.whole)
	}
	c.live = nil
}

// tolerance of an element: abs + rel·|want|.
type tolerance struct{ abs, rel float64 }

// compare checks that o is the rows × cols matrix want, rows ld apart, and that
// the gaps between rows are as they were.
func (c *check) compare(o *operand, want []float64, rows, cols, ld int, tol tolerance) {
	got := c.read(o)
	for i := range rows {
		for j := range ld {
			at := i*ld + j
			if at >= len(got) {
				break
			}
			if j >= cols {
				if math.Float32bits(got[at]) != math.Float32bits(o.data[at]) {
					c.failf("%s: written into the gap of row %d, column %d of %d", o.name, i, j, cols)
					return
				}
				continue
			}
			w := want[i*cols+j]
			if d := math.Abs(float64(got[at]) - w); !(d <= tol.abs+tol.rel*math.Abs(w)) {
				note := ""
				if math.Float32bits(got[at]) == poisonBits {
					note = " (never written)"
				}
				c.failf("%s[%d,%d] = %g%s, want %g", o.name, i, j, got[at], note, w)
				return
			}
		}
	}
}

// equal is compare for a vector.
func (c *check) equal(o *operand, want []float64, tol tolerance) {
	c.compare(o, want, 1, len(want), len(want), tol)
}

// slopes checks n randomly chosen elements of the gradient o against central
// differences of loss, in which at is the list that o is the gradient of. extra is
// what o held before, when the operation adds.
func (c *check) slopes(o *operand, at, extra []float64, n int, tol tolerance, loss func() float64) {
	if c.again {
		return
	}
	got := c.read(o)
	const h = 1e-4
	for range n {
		i := c.pick.IntN(len(at))
		x := at[i]
		at[i] = x + h
		up := loss()
		at[i] = x - h
		down := loss()
		at[i] = x
		w := (up - down) / (2 * h)
		if extra != nil {
			w += extra[i]
		}
		if d := math.Abs(float64(got[i]) - w); !(d <= tol.abs+1e-6+tol.rel*math.Abs(w)) {
			c.failf("%s[%d] = %g, finite differences give %g", o.name, i, got[i], w)
			return
		}
	}
}

// normal returns n values from a normal distribution times scale.
func (c *check) normal(n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(c.r.NormFloat64() * scale)
	}
	return v
}

// wide returns v as float64.
func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}
