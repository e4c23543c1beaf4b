package cpu

import "unsafe"

// pairKernel multiplies bf16 by an instruction that takes two numbers at once, those of
// 2i and 2i+1 of the inner dimension: the sum s becomes fma(a1, b1, s), then fma(a0, b0, s),
// in f32, with denormals taken and given as 0. Blocks and panels are as those of
// gemmKernel, with a pair in the place of a float.
type pairKernel struct {
	heights       []int      // rows of the tiles there are, tallest first, down to 1
	byRows, byCol []pairTile // the tiles of A by rows and of A transposed, by their heights
	// interleave puts rows two by two into pairs, in tiles of at most 16 or 32 columns: see asm/bf16.go.
	interleave16, interleave32 pairMaker
	scaleLow                   func(dst *uint16, src *float32, n int, s float32) // dst = src·s; dst may begin where src does
	dotLow                     func(a, b *uint16, n int) float32                 // Σ a·b
	// transpose writes dst[i·32 + j] = src[j·ld + i] for i < 8·blocks, j < 8; ld in bytes.
	transpose func(dst, src unsafe.Pointer, ld, blocks int)
}

// pairTile computes out = alpha·A·B + in for a tile of C of at most 32 columns: see asm/bf16.go.
type pairTile func(k int, a *uint32, aStep int, b *uint32, in *byte, ldIn, inKind int, out *byte, ldOut int, outLow bool, alpha float32, cols int)

// pairMaker puts pairs·2 rows of n numbers of bf16, or one row without odd, into tiles of width columns of pairs.
type pairMaker func(dst *uint32, pairStep, tileStep int, src *uint16, ld, pairs, width, n int, odd bool)

const (
	pairCols = 32      // columns of a tile
	pairKC   = 1024    // pairs of a panel
	pairNC   = 2048    // columns of B packed at a time
	pairMC   = 24 * 14 // rows of A that meet a panel of B
	pairRows = 1008    // rows of C of which sums between panels are kept
	pairPad  = 16      // keeps panels out of each other's cache sets
)

// place is where elements of C are read or written: nothing, f32 or bf16. ld is in bytes.
type place struct {
	p    unsafe.Pointer
	ld   int
	kind int // as pairTile's inKind
}

const (
	nothing = iota
	inFull
	inLow
)

// at is the place of element (i, j).
func (c place) at(i, j int) *byte {
	if c.kind == nothing {
		return nil
	}
	return (*byte)(unsafe.Add(c.p, i*c.ld+j*(4>>(c.kind-inFull))))
}

// from is the place whose element (0, 0) is (i, j) of c.
func (c place) from(i, j int) place { return place{unsafe.Pointer(c.at(i, j)), c.ld, c.kind} }

// gemmByPairs shares a product out over the threads.
func (d *Device) gemmByPairs(p *lowProduct) {
	rows, cols := d.cut(p.m, p.n, (p.k+1)/2)
	if rows*cols == 1 {
		d.pairs.gemmPairs(d, &d.work[0], p)
		return
	}
	bm, bn := roundUp((p.m+rows-1)/rows, d.pairs.heights[0]), roundUp((p.n+cols-1)/cols, pairCols)
	rows, cols = (p.m+bm-1)/bm, (p.n+bn-1)/bn
	d.pool.run(rows*cols, func(worker, t int) {
		i, j := t/cols*bm, t%cols*bn
		q := *p
		q.m, q.n = min(bm, p.m-i), min(bn, p.n-j)
		size := 4
		if p.lowC {
			size = 2
		}
		q.c = unsafe.Add(p.c, (i*p.ldc+j)*size)
		if p.transA {
			q.a = halfs(p.a, i)
		} else {
			q.a = halfs(p.a, i*p.lda)
		}
		if p.transB {
			q.b = halfs(p.b, j*p.ldb)
		} else {
			q.b = halfs(p.b, j)
		}
		d.pairs.gemmPairs(d, &d.work[worker], &q)
	})
}

// gemmPairs is Gemm on one thread for operands of bf16.
func (g *pairKernel) gemmPairs(d *Device, w *workerScratch, p *lowProduct) {
	c := place{p.c, p.ldc * 4, inFull}
	if p.lowC {
		c = place{p.c, p.ldc * 2, inLow}
	}
	in := c
	switch {
	case p.beta == 0:
		in.kind = nothing
	case p.beta == 1:
	case p.lowC:
		old := make([]float32, p.m*p.n)
		d.widenRows(old, p.c, p.m, p.n, p.ldc)
		d.vec.scale(old, p.beta)
		in = place{unsafe.Pointer(&old[0]), p.n * 4, inFull}
	default:
		scaleC(&p.product)
	}
	g.multiply(w, p, nil, in, c)
}

// multiply computes out = alpha·op(A)·op(B) + in, B packed in right unless that is nil. Where
// out is bf16 and the inner dimension has several panels, the sums between them are kept in f32.
func (g *pairKernel) multiply(w *workerScratch, p *lowProduct, right *pairRight, in, out place) {
	rows, cols := p.m, min(pairNC, roundUp(p.n, pairCols))
	keep := out.kind == inLow && p.k > 2*pairKC
	if keep {
		rows = min(rows, pairRows)
		w.lowC = grow(w.lowC, rows*cols)
	}
	if right == nil {
		w.pairsB = growPairs(w.pairsB, cols/pairCols*panelOf(min(2*pairKC, p.k)))
	}
	for i := 0; i < p.m; i += rows {
		m := min(rows, p.m-i)
		for j := 0; j < p.n; j += cols {
			n := min(cols, p.n-j)
			sums, end := in.from(i, j), out.from(i, j)
			for k := 0; k < p.k; k += 2 * pairKC {
				kc := min(2*pairKC, p.k-k)
				to := end
				if keep && k+kc < p.k {
					to = place{unsafe.Pointer(&w.lowC[0]), n * 4, inFull}
				}
				b, panel := w.pairsB, panelOf(kc)
				if right != nil {
					b, panel = right.panel(k, j)
				} else {
					g.packB(b, p.transB, p.b, p.ldb, k, j, kc, n)
				}
				g.panel(w, p, b, panel, i, k, m, kc, n, sums, to)
				sums = to
			}
		}
	}
}

// pairRight is the right matrix of several products, packed once.
type pairRight struct {
	k, n   int
	packed []uint32
}

// rightLen is the pairs that a k × n right matrix takes packed.
func (g *pairKernel) rightLen(k, n int) (pairs int) {
	for from := 0; from < k; from += 2 * pairKC {
		pairs += roundUp(n, pairCols) / pairCols * panelOf(min(2*pairKC, k-from))
	}
	return pairs
}

// right packs op(B), k × n, into buf, which has rightLen pairs.
func (g *pairKernel) right(buf []float32, trans bool, k, n int, b *uint16, ld int) pairRight {
	r := pairRight{k, n, unsafe.Slice((*uint32)(unsafe.Pointer(&buf[0])), len(buf))}
	for from := 0; from < k; from += 2 * pairKC {
		to, _ := r.panel(from, 0)
		g.packB(to, trans, unsafe.Pointer(b), ld, from, 0, min(2*pairKC, k-from), n)
	}
	return r
}

// panel returns the panels for rows from k and columns from j, and the pairs from one to the next.
func (r *pairRight) panel(k, j int) ([]uint32, int) {
	panel := panelOf(min(2*pairKC, r.k-k))
	before := k / (2 * pairKC) * panelOf(2*pairKC) * (roundUp(r.n, pairCols) / pairCols)
	return r.packed[before+j/pairCols*panel:], panel
}

// panel computes out = alpha·op(A)[i:i+m, k:k+kc]·B + in for n columns; B is packed in
// panels of that many pairs.
func (g *pairKernel) panel(w *workerScratch, p *lowProduct, b []uint32, panel, i, k, m, kc, n int, in, out place) {
	for ic := 0; ic < m; ic += pairMC {
		mc := min(pairMC, m-ic)
		a, tile, step, row := g.left(w, p, i+ic, k, mc, kc)
		tiles := g.byRows
		if p.transA {
			tiles = g.byCol
		}
		tall := g.heights[0]
		for j := 0; j < n; j += pairCols {
			bp := &b[j/pairCols*panel]
			for r, left := 0, mc; r < mc; r, left = r+tall, left-tall {
				// The last rows are put together of lower tiles.
				for at, h := 0, 0; at < min(tall, left); at += g.heights[h] {
					for g.heights[h] > left-at {
						h++
					}
					ap := unsafe.Add(a, r/tall*tile+at*row)
					tiles[h]((kc+1)/2, (*uint32)(ap), step, bp, in.at(ic+r+at, j), in.ld, in.kind,
						out.at(ic+r+at, j), out.ld, out.kind == inLow, p.alpha, min(pairCols, n-j))
				}
			}
		}
	}
}

// left returns op(A)[i:i+m, k:k+kc] as the tiles want it, with the bytes from one tall tile to the
// next, the tiles' aStep, and the bytes from one row to the next. A by rows is used where it lies.
func (g *pairKernel) left(w *workerScratch, p *lowProduct, i, k, m, kc int) (a unsafe.Pointer, tile, step, row int) {
	tall := g.heights[0]
	if !p.transA && kc%2 == 0 {
		return halfs(p.a, i*p.lda+k), tall * p.lda * 2, p.lda * 2, p.lda * 2
	}
	if !p.transA { // the last pair of a row has one number only
		row := (kc+1)*2 + pairPad*4
		w.pairsA = growPairs(w.pairsA, m*row/4)
		for r := range m {
			to := unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(&w.pairsA[0]), r*row)), kc+1)
			copy(to, unsafe.Slice((*uint16)(halfs(p.a, (i+r)*p.lda+k)), kc))
			to[kc] = 0
		}
		return unsafe.Pointer(&w.pairsA[0]), tall * row, row, row
	}
	const width = 16 // pairs of a k
	tile = (kc+1)/2*width + pairPad
	w.pairsA = growPairs(w.pairsA, (m+tall-1)/tall*tile)
	pack(g.interleave16, w.pairsA, width, tile, halfs(p.a, k*p.lda+i), p.lda, kc, tall, m)
	return unsafe.Pointer(&w.pairsA[0]), tile * 4, width * 4, 4
}

// packB copies op(B)[k:k+kc, j:j+n] into panels of 32 columns of pairs, padded with zeros.
func (g *pairKernel) packB(dst []uint32, trans bool, b unsafe.Pointer, ld, k, j, kc, n int) {
	if trans {
		for at := 0; at < n; at += pairCols {
			g.packT(dst[at/pairCols*panelOf(kc):][:panelOf(kc)], halfs(b, (j+at)*ld+k), ld, kc, min(pairCols, n-at))
		}
		return
	}
	pack(g.interleave32, dst, pairCols, panelOf(kc), halfs(b, k*ld+j), ld, kc, pairCols, n)
}

// panelOf is the pairs from one panel of B to the next.
func panelOf(kc int) int { return (kc+1)/2*pairCols + pairPad }

// pack puts rows of n numbers, ld apart, into tiles of width columns, a few rows at a
// time: see packRows.
func pack(interleave pairMaker, dst []uint32, step, tile int, src unsafe.Pointer, ld, rows, width, n int) {
	for r := 0; r < rows; r += packRows {
		pairs, odd := min(packRows, rows-r)/2, true
		if pairs == 0 {
			pairs, odd = 1, false
		}
		interleave(&dst[r/2*step], step*4, tile*4, (*uint16)(halfs(src, r*ld)), ld*2, pairs, width, n, odd)
		if last := r + 2*pairs; odd && last < min(r+packRows, rows) {
			interleave(&dst[last/2*step], step*4, tile*4, (*uint16)(halfs(src, last*ld)), ld*2, 1, width, n, false)
		}
	}
}

// packT writes a panel of B from cols rows of kc numbers, ld apart.
func (g *pairKernel) packT(dst []uint32, src unsafe.Pointer, ld, kc, cols int) {
	if cols < pairCols {
		clear(dst)
	}
	blocks := kc / 16
	for j := 0; j < cols; j++ {
		from := blocks * 16
		switch {
		case j+8 <= cols && j%8 == 0:
			g.transpose(unsafe.Pointer(&dst[j]), halfs(src, j*ld), ld*2, blocks)
		case j >= cols/8*8:
			from = 0
		}
		row := unsafe.Slice((*uint16)(halfs(src, j*ld)), kc)
		for i := from; i < kc; i += 2 {
			pair := uint32(row[i])
			if i+1 < kc {
				pair |= uint32(row[i+1]) << 16
			}
			dst[i/2*pairCols+j] = pair
		}
	}
}

func growPairs(s []uint32, n int) []uint32 {
	if cap(s) < n {
		return make([]uint32, n)
	}
	return s[:n]
}
