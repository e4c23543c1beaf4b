package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Sizes that kernels/cpu must share: kc of the packed A and its padding.
const (
	kc   = 256
	aPad = 16
)

// tiles writes the tile kernels: for each number of rows, and for A by rows and
// interleaved, C (+)= alpha·A·B for two vectors of columns.
func (g *gen) tiles() {
	mr := 6
	if g.wide {
		mr = 14
	}
	for rows := 1; rows <= mr; rows++ {
		g.tile(fmt.Sprintf("tile%d", rows), rows, false)
		g.tile(fmt.Sprintf("tileT%d", rows), rows, true)
	}
}

// tile writes one kernel. A's rows lie kc + aPad elements apart, or, when transposed,
// its columns aStep elements. The last columns of C may be fewer than two vectors:
// cols says how many there are, B is zero beyond them. Memory at ahead, a cache line
// for every four k, is fetched into the second cache.
func (g *gen) tile(name string, rows int, transposed bool) {
	TEXT(name+g.suffix, 4, "func(k int, a *float32, aStep int, b *float32, ahead uintptr, c *float32, ldc int, alpha float32, accumulate bool, cols int)")
	Pragma("noescape")
	k := Load(Param("k"), GP64())
	a, b := Load(Param("a"), GP64()), Load(Param("b"), GP64())
	ahead := Load(Param("ahead"), GP64())
	c, ldc := Load(Param("c"), GP64()), Load(Param("ldc"), GP64())
	SHLQ(U8(2), ldc)
	rowStep, aStep := (kc+aPad)*4, GP64()
	if transposed {
		rowStep = 4
		Load(Param("aStep"), aStep)
		SHLQ(U8(2), aStep)
	}
	width := g.lanes * 4
	var acc [16][2]VecVirtual
	for r := range rows {
		for j := range 2 {
			acc[r][j] = g.zero()
		}
	}
	at := GP64()
	MOVQ(c, at)
	for range rows {
		PREFETCHT1(Mem{Base: at})
		PREFETCHT1(Mem{Base: at, Disp: 2*width - 1})
		ADDQ(ldc, at)
	}
	b0, b1, x := g.vec(), g.vec(), [2]VecVirtual{g.vec(), g.vec()}
	step := func(u int) {
		VMOVUPS(Mem{Base: b, Disp: u * 2 * width}, b0)
		VMOVUPS(Mem{Base: b, Disp: u*2*width + width}, b1)
		for r := range rows {
			v := x[r%2]
			at := r * rowStep
			if !transposed {
				at += u * 4
			}
			VBROADCASTSS(Mem{Base: a, Disp: at}, v)
			VFMADD231PS(v, b0, acc[r][0])
			VFMADD231PS(v, b1, acc[r][1])
		}
		if transposed {
			ADDQ(aStep, a)
		}
	}
	advance := func(steps int) {
		if !transposed {
			ADDQ(U32(uint32(steps*4)), a)
		}
		ADDQ(U32(uint32(steps*2*width)), b)
	}
	const unroll = 4
	Label("four")
	CMPQ(k, U32(unroll))
	JL(LabelRef("one"))
	PREFETCHT1(Mem{Base: ahead})
	ADDQ(U32(64), ahead)
	for u := range unroll {
		step(u)
	}
	advance(unroll)
	SUBQ(U32(unroll), k)
	JMP(LabelRef("four"))
	Label("one")
	TESTQ(k, k)
	JZ(LabelRef("write"))
	step(0)
	advance(1)
	DECQ(k)
	JMP(LabelRef("one"))

	Label("write")
	alpha := x[0]
	m, err := Param("alpha").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(m.Addr, alpha)
	accumulate := Load(Param("accumulate"), GP8())
	cols := GP64()
	Load(Param("cols"), cols)
	old := b0
	// write emits the loop-free stores; the element's arithmetic is the same in all.
	write := func(prefix string, masks [2]Op) {
		TESTB(accumulate, accumulate)
		JZ(LabelRef(prefix + "Set"))
		for _, add := range []bool{true, false} {
			if !add {
				Label(prefix + "Set")
			}
			MOVQ(c, at)
			for r := range rows {
				for j := range 2 {
					m := Mem{Base: at, Disp: j * width}
					v := acc[r][j]
					mask := masks[j]
					if add {
						switch {
						case mask == nil:
							VMOVUPS(m, old)
						case g.wide:
							VMOVUPS_Z(m, mask, old)
						default:
							VMASKMOVPS(m, mask, old)
						}
						VFMADD213PS(old, alpha, v)
					} else {
						VMULPS(alpha, v, v)
					}
					switch {
					case mask == nil:
						VMOVUPS(v, m)
					case g.wide:
						VMOVUPS(v, mask, m)
					default:
						VMASKMOVPS(v, mask, m)
					}
				}
				if r < rows-1 {
					ADDQ(ldc, at)
				}
			}
			VZEROUPPER()
			RET()
		}
	}
	CMPQ(cols, U32(uint32(2*g.lanes)))
	JL(LabelRef("part"))
	write("whole", [2]Op{})
	Label("part")
	var masks [2]Op
	if g.wide {
		bits := GP64()
		MOVQ(I64(-1), bits)
		BZHIQ(cols, bits, bits)
		k0, k1 := K(), K()
		KMOVW(bits.As32(), k0)
		SHRQ(U8(16), bits)
		KMOVW(bits.As32(), k1)
		masks = [2]Op{k0, k1}
	} else {
		// Offsets into the window of ones and zeros, kept within it for either half.
		base, off, zero, eight := GP64(), GP64(), GP64(), GP64()
		LEAQ(g.consts["tailMask"], base)
		XORQ(zero, zero)
		MOVQ(U32(8), eight)
		for j := range 2 {
			MOVQ(U32(uint32(8*(j+1))), off)
			SUBQ(cols, off)
			CMPQ(off, zero)
			CMOVQLT(zero, off)
			CMPQ(off, eight)
			CMOVQGT(eight, off)
			v := x[1]
			if j == 1 {
				v = b1
			}
			VMOVUPS(Mem{Base: base, Index: off, Scale: 4}, v)
			masks[j] = v
		}
	}
	write("part", masks)
}

// transpose writes an 8 × 8 transposer: for each of blocks, dst[i·nr + j] = src[j·ld + i],
// i, j < 8; strides in bytes.
func (g *gen) transpose() {
	if g.wide {
		return // the AVX2 one serves both
	}
	TEXT("transpose8"+g.suffix, 4, "func(dst, src *float32, ld, nr, blocks int)")
	Pragma("noescape")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	ld, nr, blocks := Load(Param("ld"), GP64()), Load(Param("nr"), GP64()), Load(Param("blocks"), GP64())
	ld3, low := GP64(), GP64()
	LEAQ(Mem{Base: ld, Index: ld, Scale: 2}, ld3)
	LEAQ(Mem{Base: src, Index: ld, Scale: 4}, low) // rows 4 to 7
	Label("block")
	TESTQ(blocks, blocks)
	JZ(LabelRef("done"))
	row := func(base Register, i, disp int) Mem {
		switch i {
		case 0:
			return Mem{Base: base, Disp: disp}
		case 1:
			return Mem{Base: base, Index: ld, Scale: 1, Disp: disp}
		case 2:
			return Mem{Base: base, Index: ld, Scale: 2, Disp: disp}
		}
		return Mem{Base: base, Index: ld3, Scale: 1, Disp: disp}
	}
	for half := range 2 { // columns 0–3, then 4–7 of the eight rows
		var r [4]VecVirtual
		for i := range 4 {
			r[i] = YMM()
			VMOVUPS(row(src, i, half*16), r[i].AsX())
			VINSERTF128(U8(1), row(low, i, half*16), r[i], r[i])
		}
		t0, t1, t2, t3 := YMM(), YMM(), YMM(), YMM()
		VUNPCKLPS(r[1], r[0], t0)
		VUNPCKHPS(r[1], r[0], t1)
		VUNPCKLPS(r[3], r[2], t2)
		VUNPCKHPS(r[3], r[2], t3)
		for _, s := range []struct {
			imm  U8
			a, b Op
		}{{0x44, t2, t0}, {0xee, t2, t0}, {0x44, t3, t1}, {0xee, t3, t1}} {
			v := YMM()
			VSHUFPS(s.imm, s.a, s.b, v)
			VMOVUPS(v, Mem{Base: dst})
			ADDQ(nr, dst)
		}
	}
	ADDQ(U32(32), src)
	ADDQ(U32(32), low)
	DECQ(blocks)
	JMP(LabelRef("block"))
	Label("done")
	VZEROUPPER()
	RET()
}
