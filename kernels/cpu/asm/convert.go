package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// converts writes the two kernels between f32 and bf16. They take whole vectors
// only: the numbers that are left over are the caller's, for AVX2 has no masked
// store of 16 bits. As rounding is defined to the bit, nobody can tell.
func (g *gen) converts() {
	g.widen()
	g.narrow()
}

func (g *gen) widen() {
	TEXT("widen"+g.suffix, 4, "func(dst *float32, src *uint16, vectors int)")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("vectors"), GP64())
	Label("next")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	v := g.vec()
	VPMOVZXWD(Mem{Base: src}, v)
	VPSLLD(U8(16), v, v)
	VMOVUPS(v, Mem{Base: dst})
	ADDQ(U32(uint32(g.lanes*2)), src)
	ADDQ(U32(uint32(g.lanes*4)), dst)
	DECQ(n)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}

func (g *gen) narrow() {
	TEXT("narrow"+g.suffix, 4, "func(dst *uint16, src *float32, vectors int)")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("vectors"), GP64())
	one, half, quiet := g.vec(), g.vec(), g.vec()
	VMOVUPS(g.consts["unit"], one)
	VMOVUPS(g.consts["half"], half)
	VMOVUPS(g.consts["quiet"], quiet)
	Label("next")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	v, odd, nan := g.vec(), g.vec(), g.vec()
	VMOVUPS(Mem{Base: src}, v)
	VPSRLD(U8(16), v, odd)
	if g.wide {
		k := K()
		VCMPPS(U8(3), v, v, k)
		VPORD(quiet, v, nan)
		VPANDD(one, odd, odd)
		VPADDD(half, odd, odd)
		VPADDD(odd, v, v)
		VMOVDQA32(nan, k, v)
		VPSRLD(U8(16), v, v)
		VPMOVDW(v, Mem{Base: dst})
	} else {
		is := g.vec()
		VCMPPS(U8(3), v, v, is)
		VPOR(quiet, v, nan)
		VPAND(one, odd, odd)
		VPADDD(half, odd, odd)
		VPADDD(odd, v, v)
		VBLENDVPS(is, nan, v, v)
		VPSRLD(U8(16), v, v)
		h := XMM()
		VEXTRACTI128(U8(1), v, h)
		x := v.AsX()
		VPACKUSDW(h, x, x)
		VMOVUPS(x, Mem{Base: dst})
	}
	ADDQ(U32(uint32(g.lanes*4)), src)
	ADDQ(U32(uint32(g.lanes*2)), dst)
	DECQ(n)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}
