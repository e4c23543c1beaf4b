package kernels

//go:generate go run ./kerneltest/generate

// Ops are the numeric operations a device must offer. Every operation is
// deterministic: the same call on the same inputs gives the same bits in every
// process and for every alignment of the buffers; apart from Gemm, also for every
// number of threads.
//
// T below is the element type of activations and weights, F32 or BF16, one for all
// buffers of a call that are marked so; Buffer.Type says which. Everything else is
// F32 unless said otherwise: statistics, losses and the gradients of weights always
// are. An operation computes in f32 (or better) and rounds each result that it
// writes as T once, to nearest even; what it adds to is read in its own type.
type Ops interface {
	Products
	Rows
	Attentions
	Updates
}

// Products multiply matrices.
type Products interface {
	// Gemm computes C = alpha·op(A)·op(B) + beta·C, op(A) m×k, op(B) k×n, C m×n;
	// ld* are row strides in elements of the matrices as stored. A and B are T, C is
	// F32 or T; products add up in f32 (f32 inputs: in tf32 where a device was
	// opened so). C is not read when beta is 0.
	Gemm(transA, transB bool, m, n, k int, alpha float32, a Buffer, lda int, b Buffer, ldb int, beta float32, c Buffer, ldc int)
}
