package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// params loads the fields of the struct p points to, all f32, broadcast.
func params(names ...string) func(*state) {
	return func(k *state) {
		p := Load(Param("p"), GP64())
		for i, n := range names {
			v := k.vec()
			VBROADCASTSS(Mem{Base: p, Disp: i * 4}, v)
			k.f[n] = v
		}
	}
}

func (g *gen) optimizers() {
	g.emit(kernel{name: "adamw", sig: "func(w, g, m, v []float32, p *float32)", slices: []string{"w", "g", "m", "v"}, unroll: 1,
		prepare: params("beta1", "oneBeta1", "beta2", "oneBeta2", "gradScale", "step", "invSqrtBias2", "eps", "keep"),
		body: func(k *state, u int, _ bool) {
			g, m, v := k.load("g"), k.load("m"), k.load("v")
			VMULPS(k.f["gradScale"], g, g)
			VMULPS(k.f["beta1"], m, m)
			VFMADD231PS(k.f["oneBeta1"], g, m)
			VMULPS(g, g, g)
			VMULPS(k.f["beta2"], v, v)
			VFMADD231PS(k.f["oneBeta2"], g, v)
			k.store("m", m)
			k.store("v", v)
			VSQRTPS(v, v)
			VFMADD213PS(k.f["eps"], k.f["invSqrtBias2"], v)
			VMULPS(k.f["step"], m, m)
			VDIVPS(v, m, m)
			w := k.load("w")
			VFMSUB213PS(m, k.f["keep"], w)
			k.store("w", w)
		}})
	g.emit(kernel{name: "sgd", sig: "func(w, g, b []float32, p *float32)", slices: []string{"w", "g", "b"}, unroll: 2,
		prepare: params("gradScale", "decay", "momentum", "minusLR"),
		body: func(k *state, u int, _ bool) {
			w, g, b := k.load("w"), k.load("g"), k.load("b")
			VMULPS(k.f["gradScale"], g, g)
			VFMADD231PS(k.f["decay"], w, g)
			VFMADD213PS(g, k.f["momentum"], b)
			VFMADD231PS(k.f["minusLR"], b, w)
			k.store("b", b)
			k.store("w", w)
		}})
	g.emit(kernel{name: "sgdPlain", sig: "func(w, g []float32, p *float32)", slices: []string{"w", "g"}, unroll: 2,
		prepare: params("gradScale", "decay", "momentum", "minusLR"),
		body: func(k *state, u int, _ bool) {
			w, g := k.load("w"), k.load("g")
			VMULPS(k.f["gradScale"], g, g)
			VFMADD231PS(k.f["decay"], w, g)
			VFMADD231PS(k.f["minusLR"], g, w)
			k.store("w", w)
		}})
}
