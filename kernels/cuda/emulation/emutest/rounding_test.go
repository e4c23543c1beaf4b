package emutest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// param is an argument of a kernel that exists for f32 and bf16.
type param struct {
	n      int  // elements of memory
	single bool // f32 in both kernels
	out    bool // starts unwritten
	scalar any  // in place of memory
}

func typed(n int) param   { return param{n: n} }
func single(n int) param  { return param{n: n, single: true} }
func (p param) o() param  { p.out = true; return p }
func scalar(v any) param  { return param{scalar: v} }
func ids(v []int32) param { return param{scalar: v} }

// sorted returns the keys of embedding_sort: a row in the lower half, its id in the upper.
func sorted(ids []int32) (keys []int32) {
	order := make([]int32, len(ids))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(ids[a] - ids[b]) })
	for _, row := range order {
		keys = append(keys, row, ids[row])
	}
	return keys
}

// Each bf16 kernel computes what its f32 sister does on the same values, rounded once in the
// end; sums have another order. In any order of threads, and at any alignment, the same.
func TestHalfIsSingleRounded(t *testing.T) {
	l := library(t, Options{})
	const rows, dim, vocab = 9, 150, 40
	n := rows * dim
	row, elements := scalar(dim), scalar(int64(n))
	some := make([]int32, rows)
	for i := range some {
		some[i] = int32(i * 7 % vocab % 5 * 8)
	}
	eps, accumulate := scalar(float32(1e-5)), scalar(1)
	fault := ids([]int32{-1, -1})
	for _, k := range []struct {
		name                     string
		blocks, blocksY, threads int
		params                   []param
	}{
		{"add", 2, 1, 64, []param{typed(n).o(), typed(n), typed(n), elements}},
		{"gelu_forward", 2, 1, 64, []param{typed(n).o(), typed(n), elements}},
		{"gelu_backward", 2, 1, 64, []param{typed(n).o(), typed(n), typed(n), elements}},
		{"swiglu_forward", rows, 1, 64, []param{typed(n).o(), typed(2 * n), row}},
		{"swiglu_backward", rows, 1, 64, []param{typed(2 * n).o(), typed(n), typed(2 * n), row}},
		{"rotary", rows, 1, 32, []param{typed(n), single(3 * 75), single(3 * 75), scalar(3), scalar(1), scalar(75), scalar(int64(dim)), scalar(float32(-1))}},
		{"embedding_forward", rows, 1, 32, []param{typed(n).o(), typed(vocab * dim), ids(some), row, scalar(vocab), fault}},
		{"embedding_backward", rows, 1, 128, []param{single(vocab * dim), ids(sorted(some)), typed(n), scalar(rows), row, scalar(vocab), fault}},
		{"rmsnorm_forward", rows, 1, 64, []param{typed(n).o(), single(rows).o(), typed(n), typed(dim), row, eps}},
		{"rmsnorm_backward_input", rows, 1, 64, []param{typed(n), typed(n), typed(n), single(rows), typed(dim), row, accumulate}},
		{"rmsnorm_backward_weight", 2, 3, 256, []param{single(3 * dim).o(), typed(n), typed(n), single(rows), scalar(rows), row, scalar(3)}},
		{"layernorm_forward", rows, 1, 64, []param{typed(n).o(), single(rows).o(), single(rows).o(), typed(n), typed(dim), typed(dim), row, eps}},
		{"layernorm_backward_input", rows, 1, 64, []param{typed(n), typed(n), typed(n), single(rows), single(rows), typed(dim), row, accumulate}},
		{"layernorm_backward_weight", 2, 3, 256, []param{single(3 * 2 * dim).o(), typed(n), typed(n), single(rows), single(rows), scalar(rows), row, scalar(3)}},
		{"crossentropy_forward", rows, 1, 64, []param{single(rows).o(), single(rows).o(), typed(n), ids(some), row, fault}},
		{"crossentropy_backward", rows, 1, 64, []param{typed(n).o(), typed(n), single(rows), ids(some), row, scalar(float32(0.5)), fault}},
	} {
		t.Run(k.name, func(t *testing.T) {
			var exact, half [][]float64
			for seed := range uint64(3) {
				l.Seed(seed)
				offset := int(seed) * 3
				again, err := results[bf16](l, k.name+"_bf16", k.blocks, k.blocksY, k.threads, offset, k.params)
				if err != nil {
					t.Fatal(err)
				}
				if seed > 0 {
					for i := range half {
						for j := range half[i] {
							if again[i][j] != half[i][j] {
								t.Fatalf("parameter %d, element %d: %g, then %g in another order or alignment", i, j, half[i][j], again[i][j])
							}
						}
					}
					continue
				}
				half = again
				if exact, err = results[float32](l, k.name+"_f32", k.blocks, k.blocksY, k.threads, offset, k.params); err != nil {
					t.Fatal(err)
				}
			}
			for i, p := range k.params {
				for j, got := range half[i] {
					want, unit := exact[i][j], 1e-5
					if !p.single {
						want, unit = rounded(want).wide(), 1.0/128
					}
					// A sum in another order may end on the other side of the middle between two bf16.
					if d := math.Abs(got - want); !(d <= unit*math.Abs(want)+1e-6) {
						t.Fatalf("parameter %d, element %d: %g, want %g", i, j, got, want)
					}
				}
			}
		})
	}
}

// results runs a kernel on random values that T and bf16 both have, and returns what each
// parameter in memory holds afterwards.
func results[T float32 | bf16](l *Library, name string, blocks, blocksY, threads, offset int, params []param) ([][]float64, error) {
	r := rand.New(rand.NewPCG(3, 4))
	var args []any
	all := make([][]float64, len(params))
	var read []func()
	for i, p := range params {
		switch v := p.scalar.(type) {
		case nil:
			if p.single {
				args = append(args, memory[float32](l, r, p, offset, &all[i], &read))
			} else {
				args = append(args, memory[T](l, r, p, offset, &all[i], &read))
			}
		case []int32:
			m := From(l, v, 0)
			args, read = append(args, m.Ptr()), append(read, m.Free)
		default:
			args = append(args, v)
		}
	}
	err := l.Launch(name, blocks, blocksY, threads, 0, args...)
	for _, f := range read {
		f()
	}
	return all, err
}

func memory[T float32 | bf16](l *Library, r *rand.Rand, p param, offset int, to *[]float64, read *[]func()) unsafe.Pointer {
	m := NewMemory[T](l, p.n, offset)
	for i := range m.V {
		v := rounded(r.NormFloat64())
		if p.out {
			continue
		}
		switch e := any(&m.V[i]).(type) {
		case *float32:
			*e = float32(v.wide())
		case *bf16:
			*e = v
		}
	}
	*read = append(*read, func() {
		for _, v := range m.V {
			switch e := any(v).(type) {
			case float32:
				*to = append(*to, float64(e))
			case bf16:
				*to = append(*to, e.wide())
			}
		}
		m.Free()
	})
	return m.Ptr()
}
