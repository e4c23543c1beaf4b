package cuda_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda"
	"github.com/pipetrain/pipetrain/kernels/cuda/emulation/emutest"
)

// multiplied is a product of squares of side n on a device, beside what it should be.
type multiplied struct {
	a, b, c kernels.Buffer
	want    []float64
	n       int
}

func newProduct(d *cuda.Device, n int, seed float64) (m multiplied, err error) {
	m.n = n
	x, y := make([]float32, n*n), make([]float32, n*n)
	for i := range x {
		x[i], y[i] = float32(math.Sin(seed+float64(i))), float32(math.Cos(seed*float64(i)))
	}
	m.want = make([]float64, n*n)
	for i := range n {
		for j := range n {
			for k := range n {
				m.want[i*n+j] += float64(x[i*n+k]) * float64(y[k*n+j])
			}
		}
	}
	for _, p := range []*kernels.Buffer{&m.a, &m.b, &m.c} {
		b, err := d.Alloc(int64(4 * n * n))
		if err != nil {
			return m, err
		}
		*p = b.As(kernels.F32)
	}
	d.CopyIn(m.a, asBytes(x))
	d.CopyIn(m.b, asBytes(y))
	return m, nil
}

func (m *multiplied) multiply(d *cuda.Device) {
	d.Gemm(false, false, m.n, m.n, m.n, 1, m.a, m.n, m.b, m.n, 0, m.c, m.n)
}

// worst is the largest error of an element.
func (m *multiplied) worst(d *cuda.Device) float64 {
	got := make([]float32, m.n*m.n)
	d.CopyOut(asBytes(got), m.c)
	worst := 0.0
	for i, w := range m.want {
		e := math.Abs(float64(got[i]) - w)
		if math.IsNaN(e) {
			return math.Inf(1)
		}
		worst = max(worst, e)
	}
	return worst
}

func asBytes(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// Products on both queues at once, and of a recording, use no scratch memory of each
// other: the stand-in for cublasLt spoils a result whose workspace another product used.
func TestProductsAtOnce(t *testing.T) {
	libcuda, cublasLt := emulated(t, emutest.Options{Fast: true})
	d, err := cuda.New(cuda.Options{Driver: libcuda, CublasLt: cublasLt})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var all [3]multiplied
	for i := range all {
		if all[i], err = newProduct(d, 48, float64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := d.Record(func() { all[2].multiply(d) })
	if err != nil {
		t.Fatal(err)
	}
	for round := range 10 {
		for i := range all {
			d.Zero(all[i].c)
		}
		d.Fork()
		all[1].multiply(d)
		rec.Replay()
		d.Join()
		all[0].multiply(d)
		rec.Replay() // after the other replay, on the other queue
		d.Wait()
		for i := range all {
			if w := all[i].worst(d); !(w < 1e-4) {
				t.Fatalf("round %d: product %d is wrong by %g", round, i, w)
			}
		}
	}
	rec.Free()
	if err := d.Sync(); err != nil {
		t.Error(err)
	}
}

// tf32 is used where it is asked for, and nowhere else.
func TestTF32(t *testing.T) {
	libcuda, cublasLt := emulated(t, emutest.Options{Fast: true})
	for _, tf32 := range []bool{false, true} {
		d, err := cuda.New(cuda.Options{Driver: libcuda, CublasLt: cublasLt, TF32: tf32})
		if err != nil {
			t.Fatal(err)
		}
		m, err := newProduct(d, 40, 1)
		if err != nil {
			t.Fatal(err)
		}
		m.multiply(d)
		if w := m.worst(d); w > 1e-2 || (w > 1e-5) != tf32 {
			t.Errorf("tf32 %v: wrong by %g", tf32, w)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// childMultiply multiplies where cublasLt may know no algorithm.
func childMultiply(args string) error {
	f := strings.Fields(args)
	d, err := cuda.New(cuda.Options{Driver: f[0], CublasLt: f[1]})
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := newProduct(d, 33, 2)
	if err != nil {
		return err
	}
	m.multiply(d)
	if w := m.worst(d); !(w < 1e-4) {
		return fmt.Errorf("wrong by %g", w)
	}
	return d.Sync()
}

// Where cublasLt has no algorithm for a shape, the own kernels multiply.
func TestProductsWithoutAlgorithm(t *testing.T) {
	libcuda, cublasLt := emulated(t, emutest.Options{Fast: true})
	if out, err := child(t, "multiply "+libcuda+" "+cublasLt, "PIPETRAIN_EMULATION_NO_PRODUCTS=1"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
