package cpu

import (
	"fmt"
	"strings"
)

// vecKernels are the inner loops of the operations for one instruction set. All
// slices of a call have the length of the first; lanes and order of a sum depend
// on that length alone, never on addresses.
type vecKernels struct {
	name string

	add        func(dst, a, b []float32)            // dst = a + b
	scale      func(dst []float32, s float32)       // dst *= s
	mulAcc     func(dst, a, b []float32, s float32) // dst += a·b·s
	scaleMul   func(dst, a, b []float32, s float32) // dst = a·s·b
	dot        func(a, b []float32) float32         // Σ a·b
	dot3       func(a, b, c []float32) float32      // Σ a·b·c
	max        func(x []float32) float32            // max, −Inf when empty; NaN when any is
	sum        func(x []float32) float64            // Σ x in f64
	sumSquares func(x []float32) float64            // Σ x² in f64

	sumExp   func(x []float32, bias float32) float32          // Σ exp(x − bias)
	expSum   func(dst []float32, scale, bias float32) float32 // dst = exp(dst·scale − bias); Σ dst
	expScale func(dst, x []float32, bias, scale float32)      // dst = exp(x − bias)·scale

	normGrad    func(dx, dy, x, gamma []float32, r, c float32) // dx = gamma·dy·r + x·c
	normGradAdd func(dx, dy, x, gamma []float32, r, c float32) // dx += gamma·dy·r + x·c

	squaresAbout     func(x []float32, m float32) float32                    // Σ (x−m)²
	dotAbout         func(a, b, c []float32, m float32) float32              // Σ a·b·(c−m)
	normalise        func(y, x, gamma, beta []float32, m, r float32)         // y = (x−m)·r·gamma + beta
	mulAbout         func(dst, a, b []float32, m, r float32)                 // dst += a·(b−m)·r
	layerNormGrad    func(dx, dy, x, gamma []float32, m, r, mean, c float32) // dx = r·(gamma·dy − mean − (x−m)·c)
	layerNormGradAdd func(dx, dy, x, gamma []float32, m, r, mean, c float32) // dx += the same

	gelu     func(y, x []float32)      // y = x·σ(2·√(2/π)·(x + 0.044715·x³))
	geluGrad func(dx, dy, x []float32) // dx = dy·(that function's derivative); dx may be x

	widen  func(dst []float32, src []uint16) // bf16 as f32
	narrow func(dst []uint16, src []float32) // f32 rounded to bf16

	rotate     func(a, b, cos, sin []float32) // (a, b) = (a·cos − b·sin, b·cos + a·sin)
	rotateBack func(a, b, cos, sin []float32) // (a, b) = (a·cos + b·sin, b·cos − a·sin)

	swiglu     func(y, g, u []float32)          // y = g·σ(g)·u
	swigluGrad func(dg, du, dy, g, u []float32) // dg may be g, du may be u

	// softmaxGrad turns scores into p = exp(s·scale − lse) and dp into p·(dp − delta)·scale.
	softmaxGrad func(s, dp []float32, scale, lse, delta float32)

	adamw    func(w, g, m, v []float32, p *adamParams)
	sgd      func(w, g, b []float32, p *sgdParams)
	sgdPlain func(w, g []float32, p *sgdParams)

	gemm  gemmKernel
	pairs *pairKernel // nil: bf16 is multiplied as f32
}

// isas lists the instruction sets of this processor, best first; init functions
// of the architectures put theirs before the plain one.
var isas = []*vecKernels{&goKernels}

func selectISA(name string) (*vecKernels, error) {
	var have []string
	for _, k := range isas {
		if name == "" || name == k.name {
			return k, nil
		}
		have = append(have, k.name)
	}
	return nil, fmt.Errorf("cpu: instruction set %q is not available: this processor has %s", name, strings.Join(have, ", "))
}

// ISAs returns the instruction sets that New accepts on this processor, best first.
func ISAs() []string {
	var names []string
	for _, k := range isas {
		names = append(names, k.name)
	}
	return names
}
