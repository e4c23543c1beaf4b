package cuda

import (
	"errors"
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/cuda/cublaslt"
)

// products are cublasLt's, with the algorithm for each shape that came by; nil: the
// own kernels.
type products struct {
	lt    *cublaslt.Library
	tf32  bool
	bytes int64 // workspace
	plans map[cublaslt.Shape]*cublaslt.Plan
}

// openProducts loads cublasLt. That it is not there is no mistake unless it was asked for.
func openProducts(o Options, card Card) (*products, error) {
	if o.CublasLt == "none" {
		return nil, nil
	}
	lt, err := cublaslt.Open(o.CublasLt)
	if errors.Is(err, cublaslt.ErrNoLibrary) {
		if o.CublasLt == "" {
			return nil, nil
		}
		return nil, fmt.Errorf("device.cublaslt: %w", err)
	}
	if err != nil {
		return nil, err
	}
	p := &products{lt: lt, tf32: o.TF32, bytes: 4 << 20, plans: map[cublaslt.Shape]*cublaslt.Plan{}}
	if card.Capability >= 90 {
		p.bytes = 32 << 20 // what NVIDIA recommends for Hopper
	}
	return p, nil
}

func (p *products) workspace() int64 {
	if p == nil {
		return 0
	}
	return p.bytes
}

func (p *products) info() map[string]string {
	if p == nil {
		return map[string]string{"gemm": "own kernels: no cublasLt here, products are several times slower"}
	}
	mode := "fp32"
	if p.tf32 {
		mode = "tf32"
	}
	return map[string]string{"gemm": "cublasLt " + p.lt.Version(), "cublaslt": p.lt.Path(), "f32 products": mode}
}

func (p *products) close() {
	if p == nil {
		return
	}
	for _, plan := range p.plans {
		if plan != nil {
			p.lt.Drop(plan)
		}
	}
	_ = p.lt.Close()
}

// plan returns how a shape is computed, nil where the library cannot.
func (p *products) plan(s cublaslt.Shape) (*cublaslt.Plan, error) {
	plan, known := p.plans[s]
	if known {
		return plan, nil
	}
	plan, err := p.lt.Plan(s, p.bytes)
	if err != nil {
		if !errors.Is(err, cublaslt.NotSupported) {
			return nil, err
		}
		plan = nil
	}
	p.plans[s] = plan
	return plan, nil
}

// GemmByAlignment is kernels.GemmByAlignment's: cublasLt reads in pieces as long as the
// alignment allows.
func (d *Device) GemmByAlignment() bool { return d.gemm != nil }

// Gemm computes C = alpha·op(A)·op(B) + beta·C. With beta 0, C is not read. A and B have one
// type, f32 or bf16; C has theirs or f32; sums are in f32.
func (d *Device) Gemm(transA, transB bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	if m < 0 || n < 0 || k < 0 {
		panic(fmt.Sprintf("cuda: Gemm: m %d, n %d, k %d: negative size", m, n, k))
	}
	if m == 0 || n == 0 {
		return
	}
	if alpha == 0 {
		k = 0
	}
	out := float("Gemm", "C", c)
	in := out
	s := cublaslt.Shape{TransA: transA, TransB: transB, M: m, N: n, K: k, LDA: lda, LDB: ldb, LDC: ldc}
	pc := matrix("C", c, out, m, n, ldc)
	var pa, pb uintptr
	if k > 0 {
		in = float("Gemm", "A", a)
		ra, ca, rb, cb := m, k, k, n
		if transA {
			ra, ca = ca, ra
		}
		if transB {
			rb, cb = cb, rb
		}
		pa, pb = matrix("A", a, in, ra, ca, lda), matrix("B", b, in, rb, cb, ldb)
	}
	d.perform("Gemm", func() error {
		if d.gemm != nil && k > 0 {
			s.In, s.Out = ltType(in), ltType(out)
			s.TF32 = d.gemm.tf32 && in == kernels.F32
			s.AlignedA, s.AlignedB, s.AlignedC = alignment(pa), alignment(pb), alignment(pc)
			plan, err := d.gemm.plan(s)
			if err != nil {
				return err
			}
			if plan != nil {
				return d.gemm.lt.Matmul(plan, alpha, pa, pb, beta, pc, uintptr(d.now.work), d.gemm.bytes, d.now.stream.Handle())
			}
		}
		return d.ownGemm(in, out, s, alpha, pa, pb, beta, pc)
	})
}

// ownGemm multiplies by the own kernels, in tiles of 128 × 128, or of 32 × 32 where
// those would leave multiprocessors idle.
func (d *Device) ownGemm(in, out kernels.DType, s cublaslt.Shape, alpha float32, a, b uintptr, beta float32, c uintptr) error {
	tiles := func(side int) int { return (s.M + side - 1) / side * ((s.N + side - 1) / side) }
	name, side := "gemm_128_"+in.String(), 128
	if tiles(128) < 2*d.card.Multiprocessors {
		name, side = "gemm_32_"+in.String(), 32
	}
	d.args.Reset().Int(flag(s.TransA)).Int(flag(s.TransB)).Int(s.M).Int(s.N).Int(s.K).Float(alpha).Addr(a).Long(int64(s.LDA)).
		Addr(b).Long(int64(s.LDB)).Float(beta).Addr(c).Long(int64(s.LDC))
	return d.launch(name, out, grid{x: tiles(side), threads: 256})
}

func flag(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func ltType(t kernels.DType) cublaslt.Type {
	if t == kernels.BF16 {
		return cublaslt.BF16
	}
	return cublaslt.F32
}

// alignment returns the bytes to which an address is aligned, at most 16: no kernel
// asks for more, and so all blocks of an arena have one algorithm.
func alignment(p uintptr) int {
	return int(min(p&-p, 16))
}

// matrix checks that b holds rows of cols elements at stride ld and returns its start.
func matrix(name string, b kernels.Buffer, t kernels.DType, rows, cols, ld int) uintptr {
	if ld < cols {
		panic(fmt.Sprintf("cuda: Gemm: %s: stride %d is below the row of %d", name, ld, cols))
	}
	return want("Gemm", name, b, t, area(rows-1, ld)+int64(cols))
}
