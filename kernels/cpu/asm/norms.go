package main

import (
	. "github.com/mmcloughlin/avo/build"
)

// layerNorm writes the loops of a norm that takes the row's mean m off first.
func (g *gen) layerNorm() {
	g.emit(kernel{name: "squaresAbout", sig: "func(x []float32, m float32) float32", slices: []string{"x"}, floats: []string{"m"}, unroll: 4,
		prepare: accumulate(4),
		body: func(k *state, u int, _ bool) {
			v := k.load("x")
			VSUBPS(k.f["m"], v, v)
			k.zeroTail(v)
			VFMADD231PS(v, v, k.acc[u])
		},
		finish: returnSum})
	g.emit(kernel{name: "dotAbout", sig: "func(a, b, c []float32, m float32) float32", slices: []string{"a", "b", "c"}, floats: []string{"m"}, unroll: 4,
		prepare: accumulate(4),
		body: func(k *state, u int, _ bool) {
			// Beyond the end a and b are zero, and so is the product.
			v, c := k.load("a"), k.load("c")
			VMULPS(k.load("b"), v, v)
			VSUBPS(k.f["m"], c, c)
			VFMADD231PS(c, v, k.acc[u])
		},
		finish: returnSum})
	g.emit(kernel{name: "normalise", sig: "func(y, x, gamma, beta []float32, m, r float32)", slices: []string{"y", "x", "gamma", "beta"}, floats: []string{"m", "r"}, unroll: 2,
		body: func(k *state, u int, _ bool) {
			v, b := k.load("x"), k.load("beta")
			VSUBPS(k.f["m"], v, v)
			VMULPS(k.f["r"], v, v)
			VFMADD132PS(k.load("gamma"), b, v)
			k.store("y", v)
		}})
	g.emit(kernel{name: "mulAbout", sig: "func(dst, a, b []float32, m, r float32)", slices: []string{"dst", "a", "b"}, floats: []string{"m", "r"}, unroll: 4,
		body: func(k *state, u int, _ bool) {
			v, d := k.load("b"), k.load("dst")
			VSUBPS(k.f["m"], v, v)
			VMULPS(k.load("a"), v, v)
			VFMADD231PS(k.f["r"], v, d)
			k.store("dst", d)
		}})
	for _, add := range []bool{false, true} {
		name := "layerNormGrad"
		if add {
			name = "layerNormGradAdd"
		}
		g.emit(kernel{name: name, sig: "func(dx, dy, x, gamma []float32, m, r, mean, c float32)", slices: []string{"dx", "dy", "x", "gamma"}, floats: []string{"m", "r", "mean", "c"}, unroll: 1,
			body: func(k *state, u int, _ bool) {
				v, x := k.load("gamma"), k.load("x")
				VSUBPS(k.f["m"], x, x)
				VFMSUB132PS(k.load("dy"), k.f["mean"], v)
				VFNMADD231PS(k.f["c"], x, v)
				VMULPS(k.f["r"], v, v)
				if add {
					VADDPS(k.load("dx"), v, v)
				}
				k.store("dx", v)
			}})
	}
}
