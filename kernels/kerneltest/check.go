package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
)

// check is one run of a case on one device.
type check struct {
	d       kernels.Device
	t       kernels.DType // of activations and weights
	r       *rand.Rand
	pick    *rand.Rand // for slopes alone, which only the first run has
	again   bool       // not the first run of the case
	offset  int        // elements by which buffers are off the device's alignment
	shape   string     // for messages
	name    string
	live    []*operand
	errs    []error
	results []result
	// expectFailure: an operation failed on purpose, so Close may return it.
	expectFailure bool
}

// result is an output, kept to compare with other runs.
type result struct {
	what string
	size int // bytes of an element
	bits []byte
}

// operand is a buffer between two guard bands.
type operand struct {
	name  string
	buf   kernels.Buffer
	whole kernels.Buffer
	data  []float32 // what was written before the operation, as the type holds it
	was   []byte    // the same as bytes
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
// The upper half of each, and either half of the first, is such a NaN of bf16.
const (
	guardBits  = 0x7fa57fa5
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

// references holds what once computed; the inputs of a case are the same in all
// runs and on all devices.
var references sync.Map

// once computes a costly reference the first time and keeps it for all later runs.
func (c *check) once(what string, f func() []float64) []float64 {
	key := c.name + c.shape + what
	v, ok := references.Load(key)
	if !ok {
		v, _ = references.LoadOrStore(key, f())
	}
	return v.([]float64)
}

func (c *check) place(o *operand, n int, t kernels.DType, put func(b []byte)) *operand {
	size := int(t.Size())
	pad := guard + c.offset
	raw := bytesOf(make([]uint32, (pad+n+guard)*size/4))
	for i := range words(raw) {
		words(raw)[i] = guardBits
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

// in places f32 values that the operation must not change.
func (c *check) in(name string, v []float32) *operand { return c.put(name, v, kernels.F32, input) }

// inOut places f32 values that the operation changes.
func (c *check) inOut(name string, v []float32) *operand {
	return c.put(name, v, kernels.F32, output)
}

// inT and inOutT are the same for buffers of the type under test.
func (c *check) inT(name string, v []float32) *operand    { return c.put(name, v, c.t, input) }
func (c *check) inOutT(name string, v []float32) *operand { return c.put(name, v, c.t, output) }

// put places values of a type, rounded to it.
func (c *check) put(name string, v []float32, t kernels.DType, state int) *operand {
	o := &operand{name: name, data: v, was: bytesOf(v), state: state}
	if t == kernels.BF16 {
		o.was = make([]byte, 0, 2*len(v))
		for _, x := range v {
			o.was = binary.NativeEndian.AppendUint16(o.was, toBF16(float64(x)))
		}
		o.data = fromBF16(o.was)
	}
	return c.place(o, len(v), t, func(b []byte) { copy(b, o.was) })
}

// ids places I32 values.
func (c *check) ids(name string, v []int32) *operand {
	return c.place(&operand{name: name, was: bytesOf(v), state: input}, len(v), kernels.I32, func(b []byte) { copy(b, bytesOf(v)) })
}

// out places an f32 output of n poisoned elements.
func (c *check) out(name string, n int) *operand { return c.inOut(name, poisoned(n)) }

// outT is out for buffers of the type under test.
func (c *check) outT(name string, n int) *operand { return c.inOutT(name, poisoned(n)) }

func poisoned(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = poison
	}
	return v
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

// bytesOf and words look at memory as it lies: devices share the host's byte order.
func bytesOf[T uint32 | int32 | float32](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4)
}

func words(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func (c *check) raw(b kernels.Buffer) []byte {
	v := bytesOf(make([]uint32, (b.Bytes()+3)/4))[:b.Bytes()]
	c.d.CopyOut(v, b)
	return v
}

// read returns an operand's values.
func (c *check) read(o *operand) []float32 {
	if o.buf.Type == kernels.BF16 {
		return fromBF16(c.raw(o.buf))
	}
	v := make([]float32, o.buf.Len)
	c.d.CopyOut(bytesOf(v), o.buf)
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
		bits := whole[from : from+int(o.buf.Bytes())]
		around := [4]byte(bytesOf([]uint32{guardBits}))
		for i, b := range whole {
			if b != around[i%4] && (i < from || i >= from+len(bits)) {
				c.failf("%s: written outside: byte %d, the buffer is [0, %d)", o.name, i-from, len(bits))
				break
			}
		}
		switch o.state {
		case output:
			c.results = append(c.results, result{c.shape + o.name, size, bits})
		case input:
			for i, b := range bits {
				if b != o.was[i] {
					c.failf("%s: an input was changed at element %d", o.name, i/size)
					break
				}
			}
		}
		c.d.Free(o.whole)
	}
	c.live = nil
}

// tolerance of an element: abs + rel·|want|, for a result in f32.
type tolerance struct{ abs, rel float64 }

// of is what a result that was computed within the tolerance may be off once it is
// stored as type t: rounding to bf16's 8 significant bits adds at most half a
// unit of the last, 2⁻⁸ of the number or half the smallest denormal.
func (tol tolerance) of(t kernels.DType, want float64) float64 {
	d := tol.abs + tol.rel*math.Abs(want)
	if t == kernels.BF16 {
		d += 0x1p-8*(math.Abs(want)+d) + 0x1p-134
	}
	return d
}

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
			if d := math.Abs(float64(got[at]) - w); !(d <= tol.of(o.buf.Type, w)) {
				note := ""
				if bits := math.Float32bits(got[at]); bits == poisonBits || bits == poisonBits&^0xffff {
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
//
// With bf16 the reference is the same function, and the numbers given to the device
// are not what it would itself have computed before, to that accuracy: f32 suffices.
func (c *check) slopes(o *operand, at, extra []float64, n int, tol tolerance, loss func() float64) {
	if c.again || c.t == kernels.BF16 {
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
