package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// lowRows are the heights of the bf16 tiles that exist; others are put together.
var lowRows = []int{14, 8, 4, 2, 1}

// zmm are the vector registers, named: the instructions of AVX512-BF16 are written as
// bytes, which neither avo nor Go's assembler knows, and so need fixed registers.
var zmm = []VecPhysical{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
	Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31}

// raw emits a 512-bit instruction of the map 0F38 with prefix F3: reg, vvvv and rm are
// numbers of vector registers (Intel SDM volume 2, 2.7.1).
func raw(opcode byte, reg, vvvv, rm int) {
	not := func(n, bit int) byte { return byte(^n>>bit) & 1 }
	p1 := not(reg, 3)<<7 | not(rm, 4)<<6 | not(rm, 3)<<5 | not(reg, 4)<<4 | 2
	p2 := byte(^vvvv&15)<<3 | 1<<2 | 2
	p3 := byte(2)<<5 | not(vvvv, 4)<<3
	modrm := byte(3<<6 | reg&7<<3 | rm&7)
	Instruction(&ir.Instruction{Opcode: "LONG", Operands: []Op{U32(uint32(p3)<<24 | uint32(p2)<<16 | uint32(p1)<<8 | 0x62)}})
	Instruction(&ir.Instruction{Opcode: "WORD", Operands: []Op{U16(uint16(modrm)<<8 | uint16(opcode))}})
}

// vdpbf16ps adds to acc the products of the pairs of bf16 in a and b: the odd ones, then the even ones.
func vdpbf16ps(acc, a, b int) { raw(0x52, acc, a, b) }

// vcvtneps2bf16 rounds src to bf16, in the lower half of dst.
func vcvtneps2bf16(dst, src int) { raw(0x72, dst, 0, src) }

// bf16 writes the kernels of AVX512-BF16.
func (g *gen) bf16() {
	for _, rows := range lowRows {
		g.lowTile(fmt.Sprintf("lowTile%d", rows), rows, false)
		g.lowTile(fmt.Sprintf("lowTileT%d", rows), rows, true)
	}
	g.interleave("interleave16", 1)
	g.interleave("interleave32", 2)
	g.scaleLow()
	g.dotLow()
}

// tail makes the mask of the last n numbers.
func tail(n Register) {
	bits := GP64()
	MOVQ(I64(-1), bits)
	BZHIQ(n, bits, bits)
	KMOVD(bits.As32(), K1)
}

// scaleLow writes dst = src·s in bf16; dst may begin where src does.
func (g *gen) scaleLow() {
	TEXT("scaleLow"+g.suffix, 4, "func(dst *uint16, src *float32, n int, s float32)")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	m, err := Param("s").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(m.Addr, Z1)
	Label("next")
	CMPQ(n, U32(16))
	JL(LabelRef("tail"))
	VMULPS(Mem{Base: src}, Z1, Z0)
	vcvtneps2bf16(0, 0)
	VMOVDQU16(Y0, Mem{Base: dst})
	ADDQ(U32(64), src)
	ADDQ(U32(32), dst)
	SUBQ(U32(16), n)
	JMP(LabelRef("next"))
	Label("tail")
	tail(n)
	VMOVUPS_Z(Mem{Base: src}, K1, Z0)
	VMULPS(Z0, Z1, Z0)
	vcvtneps2bf16(0, 0)
	VMOVDQU16(Y0, K1, Mem{Base: dst})
	VZEROUPPER()
	RET()
}

// dotLow writes Σ a·b of bf16: 16 sums of pairs, then theirs.
func (g *gen) dotLow() {
	TEXT("dotLow"+g.suffix, 4, "func(a, b *uint16, n int) float32")
	Pragma("noescape")
	a, b, n := Load(Param("a"), GP64()), Load(Param("b"), GP64()), Load(Param("n"), GP64())
	VPXORD(Z2, Z2, Z2)
	Label("next")
	CMPQ(n, U32(32))
	JL(LabelRef("tail"))
	VMOVDQU16(Mem{Base: a}, Z0)
	VMOVDQU16(Mem{Base: b}, Z1)
	vdpbf16ps(2, 0, 1)
	ADDQ(U32(64), a)
	ADDQ(U32(64), b)
	SUBQ(U32(32), n)
	JMP(LabelRef("next"))
	Label("tail")
	tail(n)
	VMOVDQU16_Z(Mem{Base: a}, K1, Z0)
	VMOVDQU16_Z(Mem{Base: b}, K1, Z1)
	vdpbf16ps(2, 0, 1)
	VEXTRACTF32X8(U8(1), Z2, Y0)
	VADDPS(Y0, Y2, Y2)
	VEXTRACTF128(U8(1), Y2, X0)
	VADDPS(X0, X2, X2)
	VPERMILPS(U8(0x4e), X2, X0)
	VADDPS(X0, X2, X2)
	VPERMILPS(U8(0xb1), X2, X0)
	VADDPS(X0, X2, X2)
	Store(X2, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// lowTile writes one kernel: out = alpha·A·B + in for rows × 32 elements, of which cols
// exist, over k pairs of bf16. The pairs of a row of A lie one behind the other and rows
// aStep bytes apart, or, when transposed, those of a k, and ks aStep bytes apart. B has
// 32 pairs a k. in is nothing, f32 or bf16 (inKind 0, 1, 2); out is f32, or bf16 when outLow.
func (g *gen) lowTile(name string, rows int, transposed bool) {
	TEXT(name+g.suffix, 4, "func(k int, a *uint32, aStep int, b *uint32, in *byte, ldIn, inKind int, out *byte, ldOut int, outLow bool, alpha float32, cols int)")
	Pragma("noescape")
	k, b := Load(Param("k"), GP64()), Load(Param("b"), GP64())
	step := Load(Param("aStep"), GP64())
	// Rows are addressed from every third one, by 0, 1 or 2 steps.
	bases := []Register{Load(Param("a"), GP64())}
	for r := 3; r < rows && !transposed; r += 3 {
		base, last := GP64(), bases[len(bases)-1]
		LEAQ(Mem{Base: last, Index: step, Scale: 2}, base)
		ADDQ(step, base)
		bases = append(bases, base)
	}
	element := func(r, u int) Mem {
		if transposed {
			return Mem{Base: bases[0], Disp: r * 4}
		}
		m := Mem{Base: bases[r/3], Disp: u * 4}
		if r%3 > 0 {
			m.Index, m.Scale = step, uint8(r%3)
		}
		return m
	}
	const b0, b1, x0 = 28, 29, 30
	for i := range 2 * rows {
		VPXORD(zmm[i], zmm[i], zmm[i])
	}
	one := func(u int) {
		VMOVUPS(Mem{Base: b, Disp: u * 128}, zmm[b0])
		VMOVUPS(Mem{Base: b, Disp: u*128 + 64}, zmm[b1])
		for r := range rows {
			x := x0 + r%2
			VPBROADCASTD(element(r, u), zmm[x])
			vdpbf16ps(2*r, x, b0)
			vdpbf16ps(2*r+1, x, b1)
		}
		if transposed {
			ADDQ(step, bases[0])
		}
	}
	advance := func(n int) {
		for _, base := range bases {
			if !transposed {
				ADDQ(U32(uint32(4*n)), base)
			}
		}
		ADDQ(U32(uint32(128*n)), b)
		SUBQ(U32(uint32(n)), k)
	}
	const unroll = 4
	Label("four")
	CMPQ(k, U32(unroll))
	JL(LabelRef("one"))
	for u := range unroll {
		one(u)
	}
	advance(unroll)
	JMP(LabelRef("four"))
	Label("one")
	TESTQ(k, k)
	JZ(LabelRef("finish"))
	one(0)
	advance(1)
	JMP(LabelRef("one"))

	Label("finish")
	g.lowFinish(rows)
}

// lowFinish scales the sums, adds what in holds and writes them.
func (g *gen) lowFinish(rows int) {
	const old, alpha = 28, 30
	m, err := Param("alpha").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(m.Addr, zmm[alpha])
	cols, bits := Load(Param("cols"), GP64()), GP64()
	MOVQ(I64(-1), bits)
	BZHIQ(cols, bits, bits)
	KMOVW(bits.As32(), K1)
	SHRQ(U8(16), bits)
	KMOVW(bits.As32(), K2)
	masks := []Op{K1, K2}
	kind := Load(Param("inKind"), GP64())
	at, ld := GP64(), GP64()
	// each runs f over the vectors of the tile, at memory of that element size.
	each := func(name string, size int, f func(v int, mask Op, m Mem)) {
		Load(Param(name), at)
		Load(Param("ld"+map[string]string{"in": "In", "out": "Out"}[name]), ld)
		for r := range rows {
			for j := range 2 {
				f(2*r+j, masks[j], Mem{Base: at, Disp: j * 16 * size})
			}
			if r < rows-1 {
				ADDQ(ld, at)
			}
		}
	}
	CMPQ(kind, U32(1))
	JG(LabelRef("inLow"))
	JE(LabelRef("inFull"))
	for v := range 2 * rows {
		VMULPS(zmm[alpha], zmm[v], zmm[v])
	}
	JMP(LabelRef("write"))
	Label("inLow")
	each("in", 2, func(v int, mask Op, m Mem) {
		VPMOVZXWD_Z(m, mask, zmm[old])
		VPSLLD(U8(16), zmm[old], zmm[old])
		VFMADD213PS(zmm[old], zmm[alpha], zmm[v])
	})
	JMP(LabelRef("write"))
	Label("inFull")
	each("in", 4, func(v int, mask Op, m Mem) {
		VMOVUPS_Z(m, mask, zmm[old])
		VFMADD213PS(zmm[old], zmm[alpha], zmm[v])
	})
	Label("write")
	low := Load(Param("outLow"), GP8())
	TESTB(low, low)
	JZ(LabelRef("outFull"))
	each("out", 2, func(v int, mask Op, m Mem) {
		vcvtneps2bf16(old, v)
		VMOVDQU16(Y28, mask, m)
	})
	VZEROUPPER()
	RET()
	Label("outFull")
	each("out", 4, func(v int, mask Op, m Mem) { VMOVUPS(zmm[v], mask, m) })
	VZEROUPPER()
	RET()
}

// interleave writes a kernel that puts rows of bf16, two by two, into pairs: tiles of
// width columns, tileStep bytes apart in dst, each with the pairs of one row after the other
// pairStep bytes apart. src has pairs·2 rows of n numbers, ld bytes apart; without odd it is
// one row, whose pairs end with 0. Columns of dst beyond the last are 0, up to 16 for each of vectors.
func (g *gen) interleave(name string, vectors int) {
	TEXT(name+g.suffix, 4, "func(dst *uint32, pairStep, tileStep int, src *uint16, ld, pairs, width, n int, odd bool)")
	Pragma("noescape")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	pairStep, tileStep := Load(Param("pairStep"), GP64()), Load(Param("tileStep"), GP64())
	ld, pairs := Load(Param("ld"), GP64()), Load(Param("pairs"), GP64())
	width, n := Load(Param("width"), GP64()), Load(Param("n"), GP64())
	odds := GP64()
	MOVBQZX(Load(Param("odd"), GP8()), odds)
	NEGQ(odds)
	Label("tile")
	cols, bits := GP64(), GP64()
	MOVQ(n, cols)
	CMPQ(cols, width)
	CMOVQGT(width, cols)
	MOVQ(I64(-1), bits)
	BZHIQ(cols, bits, bits)
	even, odd := []Register{K1, K2}, []Register{K3, K4}
	for v := range vectors {
		KMOVW(bits.As32(), even[v])
		o := GP64()
		MOVQ(bits, o)
		ANDQ(odds, o)
		KMOVW(o.As32(), odd[v])
		SHRQ(U8(16), bits)
	}
	from, to, left := GP64(), GP64(), GP64()
	MOVQ(src, from)
	MOVQ(dst, to)
	MOVQ(pairs, left)
	Label("pair")
	PREFETCHT0(Mem{Base: from, Disp: 256})
	PREFETCHT0(Mem{Base: from, Index: ld, Scale: 1, Disp: 256})
	for v := range vectors {
		VPMOVZXWD_Z(Mem{Base: from, Disp: 32 * v}, even[v], Z0)
		VPMOVZXWD_Z(Mem{Base: from, Index: ld, Scale: 1, Disp: 32 * v}, odd[v], Z1)
		VPSLLD(U8(16), Z1, Z1)
		VPORD(Z1, Z0, Z0)
		VMOVUPS(Z0, Mem{Base: to, Disp: 64 * v})
	}
	LEAQ(Mem{Base: from, Index: ld, Scale: 2}, from)
	ADDQ(pairStep, to)
	DECQ(left)
	JNZ(LabelRef("pair"))
	LEAQ(Mem{Base: src, Index: width, Scale: 2}, src)
	ADDQ(tileStep, dst)
	SUBQ(cols, n)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}
