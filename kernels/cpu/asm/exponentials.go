package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// expConsts are what exp keeps in registers where there are enough.
var expConsts = []string{"log2e", "ln2Hi", "ln2Lo", "expLow", "expHigh", "expMin", "c0", "c1", "c2", "c3", "c4", "c5", "one"}

// exp is exp of x, see exp32 of the plain version: 0 below −87.34, +Inf above
// 88.72, NaN for NaN. x is overwritten.
func (g *gen) exp(x VecVirtual) VecVirtual {
	// Whether x ≥ expMin, true for NaN.
	var keep Op
	if g.wide {
		k := K()
		VCMPPS(U8(5), g.c("expMin"), x, k)
		keep = k
	} else {
		v := g.vec()
		VCMPPS(U8(5), g.c("expMin"), x, v)
		keep = v
	}
	// With x as the second source a NaN stays.
	VMAXPS(x, g.cReg("expLow"), x)
	VMINPS(x, g.cReg("expHigh"), x)
	n := g.vec()
	VMULPS(g.c("log2e"), x, n)
	if g.wide {
		VRNDSCALEPS(U8(8), n, n)
	} else {
		VROUNDPS(U8(8), n, n)
	}
	VFNMADD231PS(g.c("ln2Hi"), n, x)
	VFNMADD231PS(g.c("ln2Lo"), n, x)
	p := g.vec()
	VMOVAPS(g.c("c0"), p)
	for _, c := range []string{"c1", "c2", "c3", "c4", "c5"} {
		VFMADD213PS(g.c(c), x, p)
	}
	square := g.vec()
	VMULPS(x, x, square)
	VFMADD213PS(x, square, p)
	VADDPS(g.c("one"), p, p)
	if g.wide {
		VSCALEFPS_Z(n, p, keep, p)
		return p
	}
	// 2^n in two factors: n may be 128, beyond the exponents of f32.
	half := g.vec()
	VCVTPS2DQ(n, n)
	VPSRAD(U8(1), n, half)
	VPSUBD(half, n, n)
	for _, v := range []VecVirtual{half, n} {
		VPADDD(g.c("bias"), v, v)
		VPSLLD(U8(23), v, v)
		VMULPS(v, p, p)
	}
	VANDPS(keep, p, p)
	return p
}

// sigmoid is 1/(1 + exp(−x)).
func (g *gen) sigmoid(x VecVirtual) VecVirtual {
	v, one := g.vec(), g.cReg("one")
	if g.wide {
		VPXORD(g.c("signBit"), x, v)
	} else {
		VXORPS(g.c("signBit"), x, v)
	}
	e := g.exp(v)
	VADDPS(one, e, e)
	out := g.vec()
	VDIVPS(e, one, out)
	return out
}

func (g *gen) exponentials() {
	sig := append([]string{"signBit"}, expConsts...)
	g.emit(kernel{name: "sumExp", sig: "func(x []float32, bias float32) float32", slices: []string{"x"}, floats: []string{"bias"},
		consts: expConsts, unroll: 2, prepare: accumulate(2),
		body: func(k *state, u int, _ bool) {
			v := k.load("x")
			VSUBPS(k.f["bias"], v, v)
			e := k.exp(v)
			k.zeroTail(e)
			VADDPS(e, k.acc[u], k.acc[u])
		},
		finish: returnSum})
	g.emit(kernel{name: "expSum", sig: "func(dst []float32, scale, bias float32) float32", slices: []string{"dst"}, floats: []string{"scale", "bias"},
		consts: expConsts, unroll: 2, prepare: accumulate(2),
		body: func(k *state, u int, _ bool) {
			v := k.load("dst")
			VFMSUB213PS(k.f["bias"], k.f["scale"], v)
			e := k.exp(v)
			k.zeroTail(e)
			VADDPS(e, k.acc[u], k.acc[u])
			k.store("dst", e)
		},
		finish: returnSum})
	g.emit(kernel{name: "expScale", sig: "func(dst, x []float32, bias, scale float32)", slices: []string{"dst", "x"}, floats: []string{"bias", "scale"},
		consts: expConsts, unroll: 2,
		body: func(k *state, u int, _ bool) {
			v := k.load("x")
			VSUBPS(k.f["bias"], v, v)
			e := k.exp(v)
			VMULPS(k.f["scale"], e, e)
			k.store("dst", e)
		}})
	g.emit(kernel{name: "softmaxGrad", sig: "func(s, dp []float32, scale, lse, delta float32)", slices: []string{"s", "dp"}, floats: []string{"scale", "lse", "delta"},
		consts: expConsts, unroll: 2,
		body: func(k *state, u int, _ bool) {
			v := k.load("s")
			VFMSUB213PS(k.f["lse"], k.f["scale"], v)
			p := k.exp(v)
			k.store("s", p)
			d := k.load("dp")
			VSUBPS(k.f["delta"], d, d)
			VMULPS(p, d, d)
			VMULPS(k.f["scale"], d, d)
			k.store("dp", d)
		}})
	g.emit(kernel{name: "swiglu", sig: "func(y, g, u []float32)", slices: []string{"y", "g", "u"}, consts: sig, unroll: 2,
		body: func(k *state, u int, _ bool) {
			x := k.load("g")
			s := k.sigmoid(x)
			VMULPS(x, s, s)
			VMULPS(k.load("u"), s, s)
			k.store("y", s)
		}})
	g.emit(kernel{name: "swigluGrad", sig: "func(dg, du, dy, g, u []float32)", slices: []string{"dg", "du", "dy", "g", "u"}, consts: sig, unroll: 1,
		body: func(k *state, u int, _ bool) {
			x := k.load("g")
			s := k.sigmoid(x)
			d, up := k.load("dy"), k.load("u")
			silu := k.vec()
			VMULPS(s, x, silu) // g·σ
			// dσ-part: σ·(1 + g·(1 − σ)) = σ + g·σ·(1 − σ) = σ + silu − silu·σ
			slope := k.vec()
			VADDPS(silu, s, slope)
			VFNMADD231PS(silu, s, slope)
			VMULPS(d, silu, silu)
			VMULPS(d, up, up)
			VMULPS(up, slope, slope)
			k.store("du", silu)
			k.store("dg", slope)
		}})
	gelu := append([]string{"geluA", "geluB"}, sig...)
	g.emit(kernel{name: "gelu", sig: "func(y, x []float32)", slices: []string{"y", "x"}, consts: gelu, unroll: 2,
		body: func(k *state, u int, _ bool) {
			x := k.load("x")
			square, arg := k.vec(), k.vec()
			VMULPS(x, x, square)
			VMOVAPS(k.cReg("geluA"), arg)
			VFMADD231PS(k.c("geluB"), square, arg)
			VMULPS(x, arg, arg)
			s := k.sigmoid(arg)
			VMULPS(x, s, s)
			k.store("y", s)
		}})
	g.emit(kernel{name: "geluGrad", sig: "func(dx, dy, x []float32)", slices: []string{"dx", "dy", "x"}, consts: append([]string{"geluC"}, gelu...), unroll: 1,
		body: func(k *state, u int, _ bool) {
			x := k.load("x")
			square, arg, slope := k.vec(), k.vec(), k.vec()
			VMULPS(x, x, square)
			VMOVAPS(k.cReg("geluA"), arg)
			VMOVAPS(arg, slope)
			VFMADD231PS(k.c("geluB"), square, arg)
			VFMADD231PS(k.c("geluC"), square, slope)
			VMULPS(x, arg, arg)
			s := k.sigmoid(arg)
			// σ·(1 + x·(1−σ)·slope)
			rest := k.vec()
			VSUBPS(s, k.cReg("one"), rest)
			VMULPS(x, rest, rest)
			VFMADD213PS(k.c("one"), slope, rest)
			VMULPS(rest, s, s)
			VMULPS(k.load("dy"), s, s)
			k.store("dx", s)
		}})
}
