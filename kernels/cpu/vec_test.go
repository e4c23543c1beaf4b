package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"
)

// TestKernelsAgainstGo calls each assembly kernel with random slices of every
// short length, at odd offsets, and compares with the plain version: results,
// what lies around the slices, and NaN and infinities passing through.
func TestKernelsAgainstGo(t *testing.T) {
	for _, isa := range isas {
		if isa == &goKernels {
			continue
		}
		v := reflect.ValueOf(isa).Elem()
		for i := range v.NumField() {
			if v.Field(i).Kind() != reflect.Func {
				continue
			}
			name := v.Type().Field(i).Name
			t.Run(isa.name+"/"+name, func(t *testing.T) {
				compareKernel(t, name, isa, &goKernels)
			})
		}
	}
}

type pair struct{ got, want []float32 }

const band = 40

func compareKernel(t *testing.T, name string, k, ref *vecKernels) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 130 {
		for _, special := range []bool{false, true} {
			var all []pair
			slice := func() pair {
				off := r.IntN(9)
				a := make([]float32, band+off+n+band)
				for i := range a {
					a[i] = float32(r.NormFloat64())
				}
				if special && n > 0 {
					for _, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 200, -200, 0} {
						a[band+off+r.IntN(n)] = x
					}
				}
				b := append([]float32(nil), a...)
				all = append(all, pair{a, b})
				return pair{a[band+off : band+off+n : band+off+n], b[band+off : band+off+n : band+off+n]}
			}
			s := [5]pair{slice(), slice(), slice(), slice(), slice()}
			for i := range s[3].got { // second moments are not negative
				if x := s[3].got[i]; x < 0 {
					s[3].got[i], s[3].want[i] = -x, -x
				}
			}
			adam := adamParams{0.9, 0.1, 0.95, 0.05, 0.5, 0.01, 1.3, 1e-8, 0.999}
			step := sgdParams{0.5, 0.1, 0.9, -0.1}
			run := func(k *vecKernels, f func(pair) []float32) float64 {
				a, b, c, d, e := f(s[0]), f(s[1]), f(s[2]), f(s[3]), f(s[4])
				switch name {
				case "add":
					k.add(a, b, c)
				case "scale":
					k.scale(a, 0.7)
				case "mulAcc":
					k.mulAcc(a, b, c, 0.7)
				case "scaleMul":
					k.scaleMul(a, b, c, 0.7)
				case "dot":
					return float64(k.dot(a, b))
				case "dot3":
					return float64(k.dot3(a, b, c))
				case "max":
					return float64(k.max(a))
				case "sum":
					return k.sum(a)
				case "sumSquares":
					return k.sumSquares(a)
				case "sumExp":
					return float64(k.sumExp(a, 0.3))
				case "expSum":
					return float64(k.expSum(a, 0.7, 0.3))
				case "expScale":
					k.expScale(a, b, 0.3, 0.7)
				case "normGrad":
					k.normGrad(a, b, c, d, 0.7, 0.2)
				case "normGradAdd":
					k.normGradAdd(a, b, c, d, 0.7, 0.2)
				case "squaresAbout":
					return float64(k.squaresAbout(a, 0.3))
				case "dotAbout":
					return float64(k.dotAbout(a, b, c, 0.3))
				case "normalise":
					k.normalise(a, b, c, d, 0.3, 0.7)
				case "mulAbout":
					k.mulAbout(a, b, c, 0.3, 0.7)
				case "layerNormGrad":
					k.layerNormGrad(a, b, c, d, 0.3, 0.7, 0.1, 0.2)
				case "layerNormGradAdd":
					k.layerNormGradAdd(a, b, c, d, 0.3, 0.7, 0.1, 0.2)
				case "gelu":
					k.gelu(a, b)
				case "geluGrad":
					k.geluGrad(a, b, c)
				case "widen": // any bits are bf16 numbers
					k.widen(a, halves(b))
				case "narrow":
					k.narrow(halves(a)[:len(b)], b)
				case "rotate":
					k.rotate(a, b, c, d)
				case "rotateBack":
					k.rotateBack(a, b, c, d)
				case "swiglu":
					k.swiglu(a, b, c)
				case "swigluGrad":
					k.swigluGrad(a, b, c, d, e)
				case "softmaxGrad":
					k.softmaxGrad(a, b, 0.7, 0.3, 0.1)
				case "adamw":
					k.adamw(a, b, c, d, &adam)
				case "sgd":
					k.sgd(a, b, c, &step)
				case "sgdPlain":
					k.sgdPlain(a, b, &step)
				default:
					t.Fatal("no test for this kernel")
				}
				return 0
			}
			got := run(k, func(p pair) []float32 { return p.got })
			want := run(ref, func(p pair) []float32 { return p.want })
			what := fmt.Sprintf("n %d special %v", n, special)
			near(t, got, want, float64(n), func() string { return what + ": returned" })
			for i, p := range all {
				for j := range p.got {
					near(t, float64(p.got[j]), float64(p.want[j]), 1, func() string { return fmt.Sprintf("%s: slice %d[%d]", what, i, j-band) })
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// halves looks at the first half of v as twice as many bf16 numbers.
func halves(v []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// TestNarrow rounds every upper half with the lower halves that matter, by every
// instruction set, to the same bits.
func TestNarrow(t *testing.T) {
	low := []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}
	x, got := make([]float32, 1<<16), make([]uint16, 1<<16)
	for _, isa := range isas {
		for _, l := range low {
			for i := range x {
				x[i] = math.Float32frombits(uint32(i)<<16 | l)
			}
			isa.narrow(got, x)
			for i, v := range x {
				if want := roundBF16(v); got[i] != want {
					t.Fatalf("%s: %#x gives %#x, want %#x", isa.name, math.Float32bits(v), got[i], want)
				}
			}
		}
	}
}

// near compares two results of a sum of n terms; infinities and NaN must agree.
func near(t *testing.T, got, want, n float64, what func() string) {
	t.Helper()
	if math.IsNaN(got) && math.IsNaN(want) || got == want {
		return
	}
	if d := math.Abs(got - want); !(d <= 1e-6*(3+n)+1e-5*math.Abs(want)) {
		t.Errorf("%s: got %g, want %g", what(), got, want)
	}
}

// TestExp checks exp of every instruction set over the whole range of f32.
func TestExp(t *testing.T) {
	const n = 1 << 16
	x, y := make([]float32, n), make([]float32, n)
	for _, isa := range isas {
		for block := range uint32(64) {
			for i := range x {
				// All high halves of the bits, 64 times, with other low halves.
				x[i] = math.Float32frombits(uint32(i)<<16 | block*1021)
			}
			isa.expScale(y, x, 0, 1)
			for i := range x {
				e := math.Exp(float64(x[i]))
				got := float64(y[i])
				switch {
				case x[i] != x[i]:
					if got == got {
						t.Fatalf("%s: exp(NaN) = %g", isa.name, got)
					}
				case x[i] < expMin:
					if got != 0 {
						t.Fatalf("%s: exp(%g) = %g, want 0", isa.name, x[i], got)
					}
				case e > math.MaxFloat32:
					// The last representable results round to +Inf.
					if !math.IsInf(got, 1) && got < 3.4e38 {
						t.Fatalf("%s: exp(%g) = %g, want +Inf", isa.name, x[i], got)
					}
				default:
					if d := math.Abs(got/e - 1); !(d < 2.5e-7) {
						t.Fatalf("%s: exp(%g) = %g, want %g, relative error %.2g", isa.name, x[i], got, e, d)
					}
				}
			}
		}
	}
}
