package cpu

import "unsafe"

// gemmKernel is a tile kernel with the block sizes that suit it (Goto and van de
// Geijn, "Anatomy of high-performance matrix multiplication", 2008): a panel of
// B, kc × nr, stays in the first cache while tiles of mr rows pass over it; a
// block of A, mc × kc, stays in the second.
type gemmKernel struct {
	fast       bool // as fast as a library, so that "auto" needs none
	mr, nr     int
	kc, mc, nc int
	// tile computes C (+)= alpha · A·B for rows ≤ mr, cols ≤ nr. The element (i, k) of A is
	// a[i·kc' + k], kc' = kc + aPad, or a[k·mr' + i], mr' = mr rounded up to 8, when
	// interleaved; the element (k, j) of B is b[k·nr + j], zero beyond cols. Each
	// element of C is one chain of multiply-adds in order of k, whatever the tile.
	tile func(rows, cols, k int, a, b, c unsafe.Pointer, ldc int, alpha float32, accumulate, interleaved bool)
	// transpose writes dst[k·nr + j] = src[j·ld + k] for j < cols, zero up to nr.
	transpose func(dst, src unsafe.Pointer, ld, cols, k, nr int)
}

// aPad keeps the rows of a packed tile of A out of each other's cache sets.
const aPad = 16

// ownBLAS is the package's own sgemm.
type ownBLAS struct{ kernel *gemmKernel }

func (o ownBLAS) info() map[string]string {
	return map[string]string{"blas": "go", "blas_path": "", "blas_version": "built in"}
}

func (o ownBLAS) sgemm(w *workerScratch, p *product) {
	g := o.kernel
	accumulate := p.beta != 0
	if p.beta != 0 && p.beta != 1 {
		scaleC(p)
	}
	mrUp := roundUp(g.mr, 8)
	kcMax, ncMax := min(g.kc, p.k), min(g.nc, roundUp(p.n, g.nr))
	w.packB = grow(w.packB, kcMax*ncMax)
	mcMax := min(g.mc, roundUp(p.m, g.mr))
	w.packA = grow(w.packA, mcMax/g.mr*max(g.mr*(g.kc+aPad), mrUp*g.kc))
	for jc := 0; jc < p.n; jc += g.nc {
		nc := min(g.nc, p.n-jc)
		for pc := 0; pc < p.k; pc += g.kc {
			kc := min(g.kc, p.k-pc)
			g.packB(w.packB, p, pc, jc, kc, nc)
			for ic := 0; ic < p.m; ic += g.mc {
				mc := min(g.mc, p.m-ic)
				step := g.packA(w.packA, p, ic, pc, mc, kc)
				for jr := 0; jr < nc; jr += g.nr {
					b := unsafe.Pointer(&w.packB[jr*kc])
					for ir := 0; ir < mc; ir += g.mr {
						a := unsafe.Pointer(&w.packA[ir/g.mr*step])
						c := floats(p.c, (ic+ir)*p.ldc+jc+jr)
						g.tile(min(g.mr, mc-ir), min(g.nr, nc-jr), kc, a, b, c, p.ldc, p.alpha, accumulate || pc > 0, p.transA)
					}
				}
			}
		}
	}
}

// packB copies op(B)[pc:pc+kc, jc:jc+nc] into panels of nr columns, padded with zeros.
func (g *gemmKernel) packB(dst []float32, p *product, pc, jc, kc, nc int) {
	for jr := 0; jr < nc; jr += g.nr {
		cols := min(g.nr, nc-jr)
		panel := dst[jr*kc : jr*kc+kc*g.nr]
		if p.transB {
			g.transpose(unsafe.Pointer(&panel[0]), floats(p.b, (jc+jr)*p.ldb+pc), p.ldb, cols, kc, g.nr)
			continue
		}
		for k := range kc {
			row := panel[k*g.nr : (k+1)*g.nr]
			copy(row, unsafe.Slice((*float32)(floats(p.b, (pc+k)*p.ldb+jc+jr)), cols))
			clear(row[cols:])
		}
	}
}

// packA copies op(A)[ic:ic+mc, pc:pc+kc] into tiles of mr rows and returns the
// elements from one tile to the next. A transposed A is kept interleaved: both
// ways rows are copied as they lie.
func (g *gemmKernel) packA(dst []float32, p *product, ic, pc, mc, kc int) int {
	if p.transA {
		mrUp := roundUp(g.mr, 8)
		for ir := 0; ir < mc; ir += g.mr {
			tile := dst[ir/g.mr*mrUp*g.kc:]
			rows := min(g.mr, mc-ir)
			for k := range kc {
				copy(tile[k*mrUp:k*mrUp+rows], unsafe.Slice((*float32)(floats(p.a, (pc+k)*p.lda+ic+ir)), rows))
			}
		}
		return mrUp * g.kc
	}
	ld := g.kc + aPad
	for i := range mc {
		copy(dst[i*ld:i*ld+kc], unsafe.Slice((*float32)(floats(p.a, (ic+i)*p.lda+pc)), kc))
	}
	return g.mr * ld
}

func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}

// transposeGo is gemmKernel.transpose in plain Go.
func transposeGo(dst, src unsafe.Pointer, ld, cols, k, nr int) {
	out := unsafe.Slice((*float32)(dst), k*nr)
	if cols < nr {
		clear(out)
	}
	for j := range cols {
		in := unsafe.Slice((*float32)(floats(src, j*ld)), k)
		for i, v := range in {
			out[i*nr+j] = v
		}
	}
}
