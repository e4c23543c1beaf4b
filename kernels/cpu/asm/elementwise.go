package main

import (
	. "github.com/mmcloughlin/avo/build"
)

func (g *gen) elementwise() {
	g.emit(kernel{name: "add", sig: "func(dst, a, b []float32)", slices: []string{"dst", "a", "b"}, unroll: 4,
		body: func(k *state, u int, _ bool) {
			v := k.load("a")
			VADDPS(k.load("b"), v, v)
			k.store("dst", v)
		}})
	g.emit(kernel{name: "scale", sig: "func(dst []float32, s float32)", slices: []string{"dst"}, floats: []string{"s"}, unroll: 4,
		body: func(k *state, u int, _ bool) {
			v := k.load("dst")
			VMULPS(k.f["s"], v, v)
			k.store("dst", v)
		}})
	g.emit(kernel{name: "mulAcc", sig: "func(dst, a, b []float32, s float32)", slices: []string{"dst", "a", "b"}, floats: []string{"s"}, unroll: 4,
		body: func(k *state, u int, _ bool) {
			v, d := k.load("a"), k.load("dst")
			VMULPS(k.load("b"), v, v)
			VFMADD231PS(k.f["s"], v, d)
			k.store("dst", d)
		}})
	g.emit(kernel{name: "scaleMul", sig: "func(dst, a, b []float32, s float32)", slices: []string{"dst", "a", "b"}, floats: []string{"s"}, unroll: 4,
		body: func(k *state, u int, _ bool) {
			v := k.load("a")
			VMULPS(k.f["s"], v, v)
			VMULPS(k.load("b"), v, v)
			k.store("dst", v)
		}})
	for _, add := range []bool{false, true} {
		name := "normGrad"
		if add {
			name = "normGradAdd"
		}
		g.emit(kernel{name: name, sig: "func(dx, dy, x, gamma []float32, r, c float32)", slices: []string{"dx", "dy", "x", "gamma"}, floats: []string{"r", "c"}, unroll: 2,
			body: func(k *state, u int, _ bool) {
				v, x := k.load("gamma"), k.load("x")
				VMULPS(k.load("dy"), v, v)
				VMULPS(k.f["r"], v, v)
				VFMADD231PS(k.f["c"], x, v)
				if add {
					VADDPS(k.load("dx"), v, v)
				}
				k.store("dx", v)
			}})
	}
	for _, back := range []bool{false, true} {
		name := "rotate"
		if back {
			name = "rotateBack"
		}
		g.emit(kernel{name: name, sig: "func(a, b, cos, sin []float32)", slices: []string{"a", "b", "cos", "sin"}, unroll: 2,
			body: func(k *state, u int, _ bool) {
				a, b, c, s := k.load("a"), k.load("b"), k.load("cos"), k.load("sin")
				ra, rb := k.vec(), k.vec()
				VMULPS(c, a, ra)
				VMULPS(c, b, rb)
				if back {
					VFMADD231PS(s, b, ra)
					VFNMADD231PS(s, a, rb)
				} else {
					VFNMADD231PS(s, b, ra)
					VFMADD231PS(s, a, rb)
				}
				k.store("a", ra)
				k.store("b", rb)
			}})
	}
}
