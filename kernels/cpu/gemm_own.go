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
	// a[i·(tileKC+aPad) + k], or a[k·aStep + i] when aStep is not 0; the element (k, j)
	// of B is b[k·nr + j], zero beyond cols. Each element of C is one chain of
	// multiply-adds in order of k, whatever the tile. The tile fetches the 4·k
	// elements at ahead into the second cache; that is an address and no
	// pointer, for it may lie outside.
	tile func(rows, cols, k int, a unsafe.Pointer, aStep int, b unsafe.Pointer, ahead uintptr, c unsafe.Pointer, ldc int, alpha float32, accumulate bool)
	// transpose writes dst[k·nr + j] = src[j·ld + k] for j < cols, zero up to nr.
	transpose func(dst, src unsafe.Pointer, ld, cols, k, nr int)
}

const (
	// tileKC is the kc of all kernels; the assembly knows it (asm/gemm.go).
	tileKC = 256
	// aPad keeps the rows of a packed tile of A out of each other's cache sets.
	aPad = 16
)

// ownBLAS is the package's own sgemm. An element of C depends on its row of A and its
// column of B alone, so results are the same however a product is cut.
type ownBLAS struct{ kernel *gemmKernel }

func (o ownBLAS) grain() (rows, cols int) { return o.kernel.mr, o.kernel.nr }

func (o ownBLAS) info() map[string]string {
	return map[string]string{"blas": "go", "blas_path": "", "blas_version": "built in"}
}

func (o ownBLAS) sgemm(w *workerScratch, p *product) {
	g := o.kernel
	accumulate := p.beta != 0
	if p.beta != 0 && p.beta != 1 {
		scaleC(p)
	}
	w.packB = grow(w.packB, min(g.kc, p.k)*min(g.nc, roundUp(p.n, g.nr)))
	for jc := 0; jc < p.n; jc += g.nc {
		nc := min(g.nc, p.n-jc)
		for pc := 0; pc < p.k; pc += g.kc {
			kc := min(g.kc, p.k-pc)
			g.packB(w.packB, p, pc, jc, kc, nc)
			g.block(w, p, w.packB, kc*g.nr, pc, jc, kc, nc, accumulate || pc > 0)
		}
	}
}

// block computes C[:, jc:jc+nc] (+)= alpha·op(A)[:, pc:pc+kc]·B, B packed in panels
// panel elements apart.
func (g *gemmKernel) block(w *workerScratch, p *product, b []float32, panel, pc, jc, kc, nc int, accumulate bool) {
	for ic := 0; ic < p.m; ic += g.mc {
		mc := min(g.mc, p.m-ic)
		a, tile, aStep := g.left(w, p, ic, pc, mc, kc)
		for jr := 0; jr < nc; jr += g.nr {
			bp := unsafe.Pointer(&b[jr/g.nr*panel])
			// While tiles pass over this panel of B they fetch the next, a part each.
			next := uintptr(bp)
			if jr+g.nr < nc {
				next += uintptr(panel * 4)
			}
			for ir := 0; ir < mc; ir += g.mr {
				c := floats(p.c, (ic+ir)*p.ldc+jc+jr)
				g.tile(min(g.mr, mc-ir), min(g.nr, nc-jr), kc, floats(a, ir/g.mr*tile), aStep, bp, next+uintptr(ir/g.mr%8*4*kc*4), c, p.ldc, p.alpha, accumulate)
			}
		}
	}
}

// left returns op(A)[ic:ic+mc, pc:pc+kc] as the tile kernel wants it, the
// elements from one tile to the next, and the tile's aStep. Where A lies so already
// it is used in place.
func (g *gemmKernel) left(w *workerScratch, p *product, ic, pc, mc, kc int) (a unsafe.Pointer, tile, aStep int) {
	if p.leftAsIs {
		if p.transA {
			return floats(p.a, pc*p.lda+ic), g.mr, p.lda
		}
		if p.lda == tileKC+aPad {
			return floats(p.a, ic*p.lda+pc), g.mr * p.lda, 0
		}
	}
	w.packA = grow(w.packA, min(g.mc, roundUp(p.m, g.mr))/g.mr*g.tileSize())
	tile, aStep = g.packA(w.packA, p, ic, pc, mc, kc)
	return unsafe.Pointer(&w.packA[0]), tile, aStep
}

// packB copies op(B)[pc:pc+kc, jc:jc+nc] into panels of nr columns, padded with zeros.
func (g *gemmKernel) packB(dst []float32, p *product, pc, jc, kc, nc int) {
	panel := kc * g.nr
	if p.transB {
		for jr := 0; jr < nc; jr += g.nr {
			g.transpose(unsafe.Pointer(&dst[jr*kc]), floats(p.b, (jc+jr)*p.ldb+pc), p.ldb, min(g.nr, nc-jr), kc, g.nr)
		}
		return
	}
	for k0 := 0; k0 < kc; k0 += packRows {
		for jr := 0; jr < nc; jr += g.nr {
			cols := min(g.nr, nc-jr)
			to, src := dst[jr/g.nr*panel:], floats(p.b, pc*p.ldb+jc+jr)
			for k := k0; k < min(k0+packRows, kc); k++ {
				if cols == 32 && g.nr == 32 { // a copy of constant size is a few moves, not a call
					*(*[32]float32)(to[k*32:]) = *(*[32]float32)(floats(src, k*p.ldb))
					continue
				}
				row := to[k*g.nr : (k+1)*g.nr]
				copy(row, unsafe.Slice((*float32)(floats(src, k*p.ldb)), cols))
				clear(row[cols:])
			}
		}
	}
}

// packRows is how many rows of a matrix are packed at a time, each from end to end:
// going down a panel row by row would, where the stride is a power of two, meet one
// cache set only, and a new page with every row.
const packRows = 8

// packA copies op(A)[ic:ic+mc, pc:pc+kc] into tiles of mr rows and returns the
// elements from one tile to the next and the tile's aStep. A transposed A is kept
// so: both ways rows are copied as they lie.
func (g *gemmKernel) packA(dst []float32, p *product, ic, pc, mc, kc int) (tile, aStep int) {
	if !p.transA {
		const ld = tileKC + aPad
		for i := range mc {
			copy(dst[i*ld:i*ld+kc], unsafe.Slice((*float32)(floats(p.a, (ic+i)*p.lda+pc)), kc))
		}
		return g.mr * ld, 0
	}
	up := roundUp(g.mr, 8)
	tile = g.tileSize()
	for k0 := 0; k0 < kc; k0 += packRows {
		for ir := 0; ir < mc; ir += g.mr {
			to := dst[ir/g.mr*tile:]
			src := floats(p.a, pc*p.lda+ic+ir)
			rows := min(g.mr, mc-ir)
			for k := k0; k < min(k0+packRows, kc); k++ {
				if up == 16 && ic+ir+16 <= p.m { // two elements too many, but still of A
					*(*[16]float32)(to[k*16:]) = *(*[16]float32)(floats(src, k*p.lda))
				} else {
					copy(to[k*up:k*up+rows], unsafe.Slice((*float32)(floats(src, k*p.lda)), rows))
				}
			}
		}
	}
	return tile, up
}

// tileSize is the elements from one packed tile of A to the next, for either form.
func (g *gemmKernel) tileSize() int {
	return max(g.mr*(tileKC+aPad), roundUp(g.mr, 8)*tileKC+aPad)
}

// rightOperand is the right matrix of several products, packed once where the own
// kernels multiply.
type rightOperand struct {
	trans  bool
	p      unsafe.Pointer
	ld     int
	k, n   int
	packed []float32 // nil: a library multiplies
}

// packedLen is the elements that a k × n right operand takes packed.
func (g *gemmKernel) packedLen(k, n int) int { return k * roundUp(n, g.nr) }

// right prepares op(B), k × n, in buf, which has packedLen elements or is nil.
func (g *gemmKernel) right(buf []float32, trans bool, k, n int, b unsafe.Pointer, ld int) rightOperand {
	r := rightOperand{trans, b, ld, k, n, buf}
	if buf != nil {
		for pc := 0; pc < k; pc += g.kc {
			g.packB(buf[pc*roundUp(n, g.nr):], &product{transB: trans, b: b, ldb: ld}, pc, 0, min(g.kc, k-pc), n)
		}
	}
	return r
}

// times is sgemm with p.m × p.k and p.k × p.n, the first rows and columns of r; beta 0 or 1.
func (d *Device) times(w *workerScratch, p *product, r *rightOperand) {
	if r.packed == nil {
		p.transB, p.b, p.ldb = r.trans, r.p, r.ld
		d.gemm.sgemm(w, p)
		return
	}
	g := &d.vec.gemm
	for pc := 0; pc < p.k; pc += g.kc {
		panel := min(g.kc, r.k-pc) * g.nr
		g.block(w, p, r.packed[pc*roundUp(r.n, g.nr):], panel, pc, 0, min(g.kc, p.k-pc), p.n, p.beta != 0 || pc > 0)
	}
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
