package cublaslt

import (
	"errors"
	"unsafe"
)

// Type is a cudaDataType.
type Type int32

// Types of matrices.
const (
	F32  Type = 0
	BF16 Type = 14
)

// Numbers of cublasLt.h.
const (
	computeF32     = 68
	computeTF32    = 77
	descTransA     = 3
	descTransB     = 4
	opT            = 1
	prefWorkspace  = 1
	prefAlignmentA = 5 // and of B, C, D
	algoBytes      = 64
	resultBytes    = 96 // the algorithm, its workspace, a status, waves, four reserved words
)

// Shape is a product C = alpha·op(A)·op(B) + beta·C, op(A) M×K, row-major.
type Shape struct {
	TransA, TransB bool
	M, N, K        int
	LDA, LDB, LDC  int  // row strides in elements
	In, Out        Type // of A and B, of C
	TF32           bool
	// Aligned says to how many bytes the matrices' addresses are aligned at least.
	AlignedA, AlignedB, AlignedC int
}

// Plan is how the library computes a shape.
type Plan struct {
	desc, a, b, c uintptr
	algorithm     [algoBytes / 8]uint64
	workspace     uint64
}

// Workspace is the scratch memory in bytes that the product uses.
func (p *Plan) Workspace() int64 { return int64(p.workspace) }

// Plan asks the library's heuristic for the best algorithm that needs at most so
// much scratch memory. errors.Is(err, NotSupported): there is none.
func (l *Library) Plan(s Shape, workspace int64) (p *Plan, err error) {
	p = &Plan{}
	defer func() {
		if err != nil {
			l.Drop(p)
		}
	}()
	compute := uintptr(computeF32)
	if s.TF32 {
		compute = computeTF32
	}
	if err := check("cublasLtMatmulDescCreate", call(l.fn.descCreate, uintptr(unsafe.Pointer(&p.desc)), compute, uintptr(F32))); err != nil {
		return p, err
	}
	// By columns the product is Cᵀ = op(B)ᵀ·op(A)ᵀ, so B comes first.
	set := func(what uintptr, yes bool) error {
		op := int32(opT)
		if !yes {
			return nil
		}
		return check("cublasLtMatmulDescSetAttribute", call(l.fn.descSet, p.desc, what, uintptr(unsafe.Pointer(&op)), 4))
	}
	if err := errors.Join(set(descTransA, s.TransB), set(descTransB, s.TransA)); err != nil {
		return p, err
	}
	layout := func(to *uintptr, t Type, rows, cols, ld int) error {
		return check("cublasLtMatrixLayoutCreate", call(l.fn.layoutCreate, uintptr(unsafe.Pointer(to)), uintptr(t), uintptr(cols), uintptr(rows), uintptr(ld)))
	}
	ra, ca, rb, cb := s.M, s.K, s.K, s.N
	if s.TransA {
		ra, ca = ca, ra
	}
	if s.TransB {
		rb, cb = cb, rb
	}
	if err := errors.Join(layout(&p.a, s.In, ra, ca, s.LDA), layout(&p.b, s.In, rb, cb, s.LDB), layout(&p.c, s.Out, s.M, s.N, s.LDC)); err != nil {
		return p, err
	}
	return p, l.choose(p, s, uint64(workspace))
}

// choose fills in the algorithm.
func (l *Library) choose(p *Plan, s Shape, workspace uint64) error {
	var pref uintptr
	if err := check("cublasLtMatmulPreferenceCreate", call(l.fn.preferenceCreate, uintptr(unsafe.Pointer(&pref)))); err != nil {
		return err
	}
	defer call(l.fn.preferenceDestroy, pref)
	const name = "cublasLtMatmulPreferenceSetAttribute"
	if err := check(name, call(l.fn.preferenceSet, pref, prefWorkspace, uintptr(unsafe.Pointer(&workspace)), 8)); err != nil {
		return err
	}
	for i, n := range []int{s.AlignedB, s.AlignedA, s.AlignedC, s.AlignedC} {
		bytes := uint32(n)
		if err := check(name, call(l.fn.preferenceSet, pref, uintptr(prefAlignmentA+i), uintptr(unsafe.Pointer(&bytes)), 4)); err != nil {
			return err
		}
	}
	var result [resultBytes / 8]uint64
	var found int32
	if err := check("cublasLtMatmulAlgoGetHeuristic", call(l.fn.heuristic, l.handle, p.desc, p.b, p.a, p.c, p.c, pref, 1,
		uintptr(unsafe.Pointer(&result[0])), uintptr(unsafe.Pointer(&found)))); err != nil {
		return err
	}
	if found == 0 {
		return NotSupported
	}
	copy(p.algorithm[:], result[:])
	p.workspace = result[algoBytes/8]
	return nil
}

// Drop frees a plan.
func (l *Library) Drop(p *Plan) {
	for _, h := range []uintptr{p.a, p.b, p.c} {
		if h != 0 {
			call(l.fn.layoutDestroy, h)
		}
	}
	if p.desc != 0 {
		call(l.fn.descDestroy, p.desc)
	}
}

// Matmul puts the product into a stream. a, b, c and work are addresses on the card.
func (l *Library) Matmul(p *Plan, alpha float32, a, b uintptr, beta float32, c, work uintptr, workBytes int64, stream uintptr) error {
	return check("cublasLtMatmul", call(l.fn.matmul, l.handle, p.desc, uintptr(unsafe.Pointer(&alpha)), b, p.b, a, p.a,
		uintptr(unsafe.Pointer(&beta)), c, p.c, c, p.c, uintptr(unsafe.Pointer(&p.algorithm[0])), work, uintptr(workBytes), stream))
}
