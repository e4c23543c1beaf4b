package cpu

import (
	"fmt"
	"unsafe"

	"github.com/pipetrain/pipetrain/kernels"
)

// sgemmer multiplies matrices on the calling thread alone; Device.Gemm shares a
// product out over threads by blocks of C. That keeps OpenMP's and BLAS's own
// threads, which would start a team for every thread Go runs on, out of the
// process.
type sgemmer interface {
	// sgemm is Gemm on one thread; w belongs to the caller's thread. Sizes are
	// checked and at least 1.
	sgemm(w *workerScratch, p *product)
	// grain is the tile of C, of which blocks should be multiples.
	grain() (rows, cols int)
	info() map[string]string
}

// product is one call of sgemm, all matrices row-major.
type product struct {
	transA, transB bool
	m, n, k        int
	alpha          float32
	a              unsafe.Pointer
	lda            int
	b              unsafe.Pointer
	ldb            int
	beta           float32
	c              unsafe.Pointer
	ldc            int
	// leftAsIs lets the own kernels read A where it lies when its stride suits them.
	leftAsIs bool
}

// workerScratch is the private memory of one thread.
type workerScratch struct {
	packA, packB []float32
	lowA, lowB   []float32 // operands of a bf16 product, widened
	lowC         []float32
	pairsA       []uint32 // operands of a bf16 product by pairs
	pairsB       []uint32
	rows         [5][]float32 // widened bf16
	partial      []float64
	fortran      fortranArgs
}

// fortranArgs are the scalars of a call of sgemm_, which takes them by reference.
// They live here so that a call allocates nothing.
type fortranArgs struct {
	transA, transB         byte
	m, n, k, lda, ldb, ldc int64
	alpha, beta            float32
}

// floats returns p moved by n elements of f32.
func floats(p unsafe.Pointer, n int) unsafe.Pointer { return unsafe.Add(p, n*4) }

// Gemm computes C = alpha·op(A)·op(B) + beta·C. With beta 0, C is not read.
func (d *Device) Gemm(transA, transB bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	if m < 0 || n < 0 || k < 0 {
		panic(fmt.Sprintf("cpu: Gemm: m %d, n %d, k %d: negative size", m, n, k))
	}
	if m == 0 || n == 0 {
		return
	}
	p := product{transA: transA, transB: transB, m: m, n: n, k: k, alpha: alpha, lda: lda, ldb: ldb, beta: beta, ldc: ldc}
	low := a.Type == kernels.BF16
	if c.Type != kernels.F32 && c.Type != a.Type && !a.Empty() {
		panic(fmt.Sprintf("cpu: Gemm: C is %s, A %s: want C f32 or as A", c.Type, a.Type))
	}
	p.c = matrix("C", c, c.Type, m, n, ldc)
	if k == 0 || alpha == 0 {
		if c.Type == kernels.BF16 {
			d.scaleLow(&lowProduct{p, true})
		} else {
			scaleC(&p)
		}
		return
	}
	if transA {
		p.a = matrix("A", a, a.Type, k, m, lda)
	} else {
		p.a = matrix("A", a, a.Type, m, k, lda)
	}
	if transB {
		p.b = matrix("B", b, a.Type, n, k, ldb)
	} else {
		p.b = matrix("B", b, a.Type, k, n, ldb)
	}
	if low {
		d.gemmLow(&lowProduct{p, c.Type == kernels.BF16})
		return
	}
	rows, cols := d.cut(m, n, k)
	if rows*cols == 1 {
		d.gemm.sgemm(&d.work[0], &p)
		return
	}
	// Bounds at whole tiles, of which only the last of C may then be narrow.
	gm, gn := d.gemm.grain()
	bm, bn := roundUp((m+rows-1)/rows, gm), roundUp((n+cols-1)/cols, gn)
	rows, cols = (m+bm-1)/bm, (n+bn-1)/bn
	d.pool.run(rows*cols, func(worker, i int) {
		q := p.block(i/cols*bm, i%cols*bn, bm, bn)
		d.gemm.sgemm(&d.work[worker], &q)
	})
}

// block is the part of p that computes at most bm × bn elements of C from (i, j).
func (p *product) block(i, j, bm, bn int) product {
	q := *p
	q.m, q.n = min(bm, p.m-i), min(bn, p.n-j)
	if p.transA {
		q.a = floats(p.a, i)
	} else {
		q.a = floats(p.a, i*p.lda)
	}
	if p.transB {
		q.b = floats(p.b, j*p.ldb)
	} else {
		q.b = floats(p.b, j)
	}
	q.c = floats(p.c, i*p.ldc+j)
	return q
}

// cut says into how many rows and columns of blocks C is cut: as many as there
// are threads, as square as they go, when the product is worth it.
func (d *Device) cut(m, n, k int) (rows, cols int) {
	const worth = 1 << 19 // multiply-adds for which waking a thread pays
	t := d.threads
	if t == 1 || m*n*k < 2*worth {
		return 1, 1
	}
	t = min(t, m*n*k/worth)
	rows, cols = 1, 1
	best := -1.0
	for r := 1; r <= t; r++ {
		c := t / r
		// What a block must read per element it computes is 1/height + 1/width.
		h, w := float64(m)/float64(r), float64(n)/float64(c)
		if h < 16 || w < 32 {
			continue
		}
		if s := float64(r*c) / (1 + 32/h + 32/w); s > best {
			best, rows, cols = s, r, c
		}
	}
	return rows, cols
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// scaleC is C = beta·C.
func scaleC(p *product) {
	for i := range p.m {
		row := unsafe.Slice((*float32)(floats(p.c, i*p.ldc)), p.n)
		switch p.beta {
		case 0:
			clear(row)
		case 1:
		default:
			scaleGo(row, p.beta)
		}
	}
}

// matrix checks that b holds rows of cols elements at stride ld and returns its start.
func matrix(name string, b kernels.Buffer, t kernels.DType, rows, cols, ld int) unsafe.Pointer {
	if ld < cols {
		panic(fmt.Sprintf("cpu: Gemm: %s: stride %d is below the row of %d", name, ld, cols))
	}
	if t != kernels.F32 && t != kernels.BF16 {
		panic(fmt.Sprintf("cpu: Gemm: %s is %s, want f32 or bf16", name, t))
	}
	check("Gemm", name, b, t, (rows-1)*ld+cols)
	return pointer(b.Addr)
}
