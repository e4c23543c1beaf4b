package cpu

import "unsafe"

// lowProduct is a product with A and B in bf16, and C in bf16 or f32. It is
// computed in blocks whose operands are widened into a thread's scratch, by
// whoever multiplies f32.
type lowProduct struct {
	product
	lowC bool
}

// Sizes of a block. Its parts of A and B lie in the second cache; chunks of k are
// multiples of tileKC, so that the own kernels give the bits of the whole product.
const (
	lowM = 256
	lowN = 512
	lowK = 2 * tileKC
)

// halfs returns p moved by n elements of bf16.
func halfs(p unsafe.Pointer, n int) unsafe.Pointer { return unsafe.Add(p, n*2) }

// gemmLow is Gemm for a, b of bf16; sizes are checked and at least 1.
func (d *Device) gemmLow(p *lowProduct) {
	if d.pairs != nil {
		d.gemmByPairs(p)
		return
	}
	rows, cols := d.cut(p.m, p.n, p.k)
	gm, gn := d.gemm.grain()
	bm, bn := min(roundUp((p.m+rows-1)/rows, gm), roundUp(lowM, gm)), min(roundUp((p.n+cols-1)/cols, gn), roundUp(lowN, gn))
	rows, cols = (p.m+bm-1)/bm, (p.n+bn-1)/bn
	// A task is a column of blocks, whose part of B is widened once, where there
	// are columns enough.
	if cols >= d.threads || d.threads == 1 {
		d.pool.run(cols, func(worker, j int) {
			d.lowBlocks(&d.work[worker], p, 0, p.m, bm, j*bn, min(bn, p.n-j*bn))
		})
		return
	}
	d.pool.run(rows*cols, func(worker, t int) {
		i, j := t/cols*bm, t%cols*bn
		d.lowBlocks(&d.work[worker], p, i, min(bm, p.m-i), bm, j, min(bn, p.n-j))
	})
}

// lowBlocks computes n columns of C from j, for m rows from i, bm at a time.
func (d *Device) lowBlocks(w *workerScratch, p *lowProduct, i, m, bm, j, n int) {
	w.lowA, w.lowB = grow(w.lowA, bm*min(lowK, p.k)), grow(w.lowB, n*min(lowK, p.k))
	for end := i + m; i < end; i += bm {
		q := product{transA: p.transA, transB: p.transB, m: min(bm, end-i), n: n, alpha: p.alpha,
			a: unsafe.Pointer(&w.lowA[0]), b: unsafe.Pointer(&w.lowB[0]), beta: p.beta}
		if p.lowC {
			w.lowC = grow(w.lowC, q.m*n)
			q.c, q.ldc = unsafe.Pointer(&w.lowC[0]), n
			if p.beta != 0 {
				d.widenRows(w.lowC, halfs(p.c, i*p.ldc+j), q.m, n, p.ldc)
			}
		} else {
			q.c, q.ldc = floats(p.c, i*p.ldc+j), p.ldc
		}
		for k0 := 0; k0 < p.k; k0 += lowK {
			q.k = min(lowK, p.k-k0)
			if p.transB {
				q.ldb = q.k
			} else {
				q.ldb = n
			}
			if i == end-m || p.k > lowK { // else it is there still
				if p.transB {
					d.widenRows(w.lowB, halfs(p.b, j*p.ldb+k0), n, q.k, p.ldb)
				} else {
					d.widenRows(w.lowB, halfs(p.b, k0*p.ldb+j), q.k, n, p.ldb)
				}
			}
			if p.transA {
				q.lda = q.m
				d.widenRows(w.lowA, halfs(p.a, k0*p.lda+i), q.k, q.m, p.lda)
			} else {
				q.lda = q.k
				d.widenRows(w.lowA, halfs(p.a, i*p.lda+k0), q.m, q.k, p.lda)
			}
			d.gemm.sgemm(w, &q)
			q.beta = 1
		}
		if p.lowC {
			for r := range q.m {
				d.vec.narrow(unsafe.Slice((*uint16)(halfs(p.c, (i+r)*p.ldc+j)), n), w.lowC[r*n:(r+1)*n])
			}
		}
	}
}

// widenRows writes rows of cols bf16 numbers, ld apart, as f32 without gaps.
func (d *Device) widenRows(dst []float32, src unsafe.Pointer, rows, cols, ld int) {
	for i := range rows {
		d.vec.widen(dst[i*cols:(i+1)*cols], unsafe.Slice((*uint16)(halfs(src, i*ld)), cols))
	}
}

// scaleLow is C = beta·C in bf16.
func (d *Device) scaleLow(p *lowProduct) {
	if p.beta == 1 {
		return
	}
	w := &d.work[0]
	for i := range p.m {
		row := unsafe.Slice((*uint16)(halfs(p.c, i*p.ldc)), p.n)
		v := w.row(0, p.n)
		if p.beta == 0 {
			clear(v)
		} else {
			d.vec.widen(v, row)
			d.vec.scale(v, p.beta)
		}
		d.vec.narrow(row, v)
	}
}
