package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
)

// flush is x, or 0 of its sign where x is below the normal numbers.
func flush(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// fma32 is a·b + c for a and b of bf16: the product is exact in f64, and so is the sum where the
// two are not 2²⁰ apart, as here.
func fma32(a, b, c float32) float32 {
	return flush(float32(float64(flush(a))*float64(flush(b)) + float64(flush(c))))
}

// pairSum is what docs/kernels.md says an element of a product of bf16 is.
func pairSum(a, b []float32, old float32, alpha, beta float32) float32 {
	sum, panels := old*beta, beta != 0
	for from := 0; from < len(a); from += 2 * pairKC {
		s := float32(0)
		for k := from; k < min(from+2*pairKC, len(a)); k += 2 {
			if k+1 < len(a) {
				s = fma32(a[k+1], b[k+1], s)
			}
			s = fma32(a[k], b[k], s)
		}
		if panels {
			sum = float32(float64(alpha)*float64(s) + float64(sum))
		} else {
			sum = alpha * s
		}
		panels = true
	}
	return sum
}

// TestPairs: products of bf16 have the bits of the sums that are promised, for each shape that
// goes another way: tails of tiles, odd inner dimensions, several panels, all transposes, C in either type.
func TestPairs(t *testing.T) {
	if !slices.Contains(ISAs(), "avx512bf16") {
		t.Skip("this processor has no AVX512-BF16")
	}
	device, err := New(Options{Threads: 2, ISA: "avx512bf16", BLAS: "go"})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	d := device.(*Device)
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{1, 1, 1}, {14, 32, 64}, {15, 33, 65}, {29, 17, 31}, {43, 70, 6}, {3, 50, 2*pairKC + 1}, {16, 9, 4*pairKC + 50}, {pairRows + 3, 2, 2*pairKC + 2}} {
		for way := range 32 {
			ta, tb, low, again, small := way&1 != 0, way&2 != 0, way&4 != 0, way&8 != 0, way&16 != 0
			if small && s[2] > 100 || s[0] > pairRows && way != 6 {
				continue
			}
			name := fmt.Sprintf("%v transA %v transB %v low %v add %v small %v", s, ta, tb, low, again, small)
			if m, n, i, j, got, want := onePair(d, r, s, ta, tb, low, again, small); got != want {
				t.Fatalf("%s: [%d, %d] of %d × %d is %#08x, want %#08x", name, i, j, m, n, got, want)
			}
		}
	}
}

func onePair(d *Device, r *rand.Rand, s [3]int, ta, tb, low, again, small bool) (m, n, i, j int, got, want uint32) {
	m, n = s[0], s[1]
	k := s[2]
	scale := 1.0
	if small { // products about the smallest normal number
		scale = 0x1p-64
	}
	matrix := func(rows, cols int) (kernels.Buffer, []float32) {
		b, err := d.Alloc(int64(2 * rows * cols))
		if err != nil {
			panic(err)
		}
		bits, v := bf16("test", "m", b.As(kernels.BF16), rows*cols), make([]float32, rows*cols)
		for i := range v {
			bits[i] = roundBF16(float32(r.NormFloat64() * scale))
		}
		widenGo(v, bits)
		return b.As(kernels.BF16), v
	}
	transposed := func(v []float32, rows, cols int) []float32 { // rows × cols of what is stored the other way
		out := make([]float32, len(v))
		for i := range rows {
			for j := range cols {
				out[i*cols+j] = v[j*rows+i]
			}
		}
		return out
	}
	a, va := matrix(m, k)
	b, vb := matrix(k, n)
	lda, ldb := k, n
	if ta {
		lda, va = m, transposed(va, m, k)
	}
	if tb {
		ldb = k
	} else {
		vb = transposed(vb, n, k)
	}
	c, vc := matrix(m, n)
	defer func() {
		for _, x := range []kernels.Buffer{a, b, c} {
			d.Free(x.As(kernels.U8))
		}
	}()
	beta := float32(0)
	if again {
		beta = 1
	}
	out := c
	if !low {
		full, _ := d.Alloc(int64(4 * m * n))
		defer d.Free(full)
		out = full.As(kernels.F32)
		d.Convert(out, c)
	}
	d.Gemm(ta, tb, m, n, k, 0.75, a, lda, b, ldb, beta, out, n)
	for i = range m {
		for j = range n {
			x := pairSum(va[i*k:(i+1)*k], vb[j*k:(j+1)*k], vc[i*n+j], 0.75, beta)
			if low {
				got, want = uint32(bf16("test", "c", out, m*n)[i*n+j]), uint32(roundBF16(flush(x)))
			} else {
				got, want = math.Float32bits(f32("test", "c", out, m*n)[i*n+j]), math.Float32bits(x)
			}
			if got != want {
				return m, n, i, j, got, want
			}
		}
	}
	return m, n, 0, 0, 0, 0
}
