package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// accumulate starts n sums at zero; the tail adds to the first of them.
func accumulate(n int) func(*state) {
	return func(k *state) {
		k.acc = nil
		for range n {
			k.acc = append(k.acc, k.zero())
		}
	}
}

// returnSum folds the sums and returns them as f32.
func returnSum(k *state) {
	k.fold(func(a, b VecVirtual) { VADDPS(a, b, b) })
	Store(k.across(k.acc[0], func(a, b, dst Op) { VADDPS(a, b, dst) }), ReturnIndex(0))
}

func (g *gen) reductions() {
	g.emit(kernel{name: "dot", sig: "func(a, b []float32) float32", slices: []string{"a", "b"}, unroll: 4,
		prepare: accumulate(4),
		body: func(k *state, u int, _ bool) {
			VFMADD231PS(k.load("b"), k.load("a"), k.acc[u])
		},
		finish: returnSum})
	g.emit(kernel{name: "dot3", sig: "func(a, b, c []float32) float32", slices: []string{"a", "b", "c"}, unroll: 4,
		prepare: accumulate(4),
		body: func(k *state, u int, _ bool) {
			v := k.load("a")
			VMULPS(k.load("b"), v, v)
			VFMADD231PS(k.load("c"), v, k.acc[u])
		},
		finish: returnSum})
	g.emit(kernel{name: "max", sig: "func(x []float32) float32", slices: []string{"x"}, unroll: 4,
		prepare: func(k *state) {
			k.acc = nil
			for range 4 {
				k.acc = append(k.acc, k.cReg("minusInf"))
			}
			if !k.wide {
				k.f["nan"] = k.zero()
				return
			}
			nan := K()
			KXORW(nan, nan, nan)
			k.nan = nan
		},
		body: func(k *state, u int, masked bool) {
			// The maximum instruction drops a NaN on one side: they are gathered apart.
			v := k.load("x")
			if k.wide {
				bad := K()
				VCMPPS(U8(3), v, v, bad)
				KORW(bad, k.nan, k.nan)
				if masked {
					VMAXPS(v, k.acc[u], k.mask, k.acc[u])
				} else {
					VMAXPS(v, k.acc[u], k.acc[u])
				}
				return
			}
			bad := k.vec()
			VCMPPS(U8(3), v, v, bad)
			VORPS(bad, k.f["nan"], k.f["nan"])
			if masked {
				w := k.cReg("minusInf")
				VBLENDVPS(k.mask, v, w, w)
				v = w
			}
			VMAXPS(v, k.acc[u], k.acc[u])
		},
		finish: func(k *state) {
			k.fold(func(a, b VecVirtual) { VMAXPS(a, b, b) })
			x := k.across(k.acc[0], func(a, b, dst Op) { VMAXPS(a, b, dst) })
			some := GP32()
			if k.wide {
				KMOVW(k.nan, some)
			} else {
				VMOVMSKPS(k.f["nan"], some)
			}
			TESTL(some, some)
			JZ(LabelRef("clean"))
			VPCMPEQD(x, x, x) // all ones is a NaN
			Label("clean")
			Store(x, ReturnIndex(0))
		}})
	for _, squares := range []bool{false, true} {
		name := "sum"
		if squares {
			name = "sumSquares"
		}
		g.emit(kernel{name: name, sig: "func(x []float32) float64", slices: []string{"x"}, unroll: 4,
			prepare: accumulate(8),
			body: func(k *state, u int, _ bool) {
				v := k.load("x")
				var low, high, lowX, highX Op
				if k.wide {
					h := YMM()
					VEXTRACTF32X8(U8(1), v, h)
					low, high, lowX, highX = k.vec(), k.vec(), v.AsY(), h
				} else {
					h := XMM()
					VEXTRACTF128(U8(1), v, h)
					low, high, lowX, highX = k.vec(), k.vec(), v.AsX(), h
				}
				VCVTPS2PD(lowX, low)
				VCVTPS2PD(highX, high)
				if squares {
					VFMADD231PD(low, low, k.acc[2*u])
					VFMADD231PD(high, high, k.acc[2*u+1])
				} else {
					VADDPD(low, k.acc[2*u], k.acc[2*u])
					VADDPD(high, k.acc[2*u+1], k.acc[2*u+1])
				}
			},
			finish: func(k *state) {
				k.fold(func(a, b VecVirtual) { VADDPD(a, b, b) })
				v := k.acc[0]
				y := v.AsY()
				if k.wide {
					h := YMM()
					VEXTRACTF64X4(U8(1), v, h)
					VADDPD(h, y, y)
				}
				x, h := v.AsX(), XMM()
				VEXTRACTF128(U8(1), y, h)
				VADDPD(h, x, x)
				VPERMILPD(U8(1), x, h)
				VADDPD(h, x, x)
				Store(x, ReturnIndex(0))
			}})
	}
}
