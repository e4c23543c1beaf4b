package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

func TestOwnGemmSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, isa := range isas {
		for range 200 {
			m, n, k := 1+r.IntN(70), 1+r.IntN(70), 1+r.IntN(600)
			ta, tb := r.IntN(2) == 0, r.IntN(2) == 0
			lda, ldb, ldc := k+r.IntN(3), n+r.IntN(3), n+r.IntN(3)
			as, bs := m*lda, k*ldb
			if ta {
				lda = m + r.IntN(3)
				as = k * lda
			}
			if tb {
				ldb = k + r.IntN(3)
				bs = n * ldb
			}
			a, b, c := make([]float32, as), make([]float32, bs), make([]float32, m*ldc)
			for i := range a {
				a[i] = r.Float32() - .5
			}
			for i := range b {
				b[i] = r.Float32() - .5
			}
			want := make([]float64, m*n)
			for i := range m {
				for j := range n {
					c[i*ldc+j] = r.Float32()
					s := 0.0
					for l := range k {
						ai, bi := i*lda+l, l*ldb+j
						if ta {
							ai = l*lda + i
						}
						if tb {
							bi = j*ldb + l
						}
						s += float64(a[ai]) * float64(b[bi])
					}
					want[i*n+j] = .5*s + 2*float64(c[i*ldc+j])
				}
			}
			var w workerScratch
			ownBLAS{&isa.gemm}.sgemm(&w, &product{ta, tb, m, n, k, .5, unsafe.Pointer(&a[0]), lda, unsafe.Pointer(&b[0]), ldb, 2, unsafe.Pointer(&c[0]), ldc, false})
			for i := range m {
				for j := range n {
					if d := math.Abs(float64(c[i*ldc+j]) - want[i*n+j]); !(d < 1e-4) {
						t.Fatalf("%s: m %d n %d k %d ta %v tb %v: C[%d,%d] = %g, want %g", isa.name, m, n, k, ta, tb, i, j, c[i*ldc+j], want[i*n+j])
					}
				}
			}
		}
	}
}
