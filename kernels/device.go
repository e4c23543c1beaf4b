// Package kernels is the compute room: a Device performs numeric operations on
// buffers of its own memory. Backends live in sub-packages (cpu, cuda); the
// conformance suite every backend must pass is kerneltest.
//
// All matrices are row-major. "rows" counts tokens: batch × sequence.
package kernels

import "fmt"

// DType is the element type of a Buffer.
type DType uint8

// Element types.
const (
	F32 DType = iota
	F64
	BF16
	I32
	U8
)

// Size returns the bytes of one element.
func (t DType) Size() int64 {
	switch t {
	case F64:
		return 8
	case BF16:
		return 2
	case U8:
		return 1
	}
	return 4
}

func (t DType) String() string {
	return [...]string{"f32", "f64", "bf16", "i32", "u8"}[t]
}

// Buffer is a typed range of device memory. It is a value and owns nothing:
// whoever allocated the memory frees it. The zero Buffer is empty.
type Buffer struct {
	Addr uintptr // address in the device's memory; never Go heap memory
	Len  int64   // elements
	Type DType
}

// Bytes returns the buffer's size in bytes.
func (b Buffer) Bytes() int64 { return b.Len * b.Type.Size() }

// Empty says whether b holds no element.
func (b Buffer) Empty() bool { return b.Len == 0 }

// Slice returns elements [from, from+n) of b. It panics when they are outside b.
func (b Buffer) Slice(from, n int64) Buffer {
	if from < 0 || n < 0 || from+n > b.Len {
		panic(fmt.Sprintf("kernels: slice [%d, %d) of a buffer of %d %s elements", from, from+n, b.Len, b.Type))
	}
	return Buffer{b.Addr + uintptr(from*b.Type.Size()), n, b.Type}
}

// As reinterprets b's bytes as elements of type t; the bytes must divide evenly.
func (b Buffer) As(t DType) Buffer {
	if b.Bytes()%t.Size() != 0 {
		panic(fmt.Sprintf("kernels: %d bytes are no whole number of %s", b.Bytes(), t))
	}
	return Buffer{b.Addr, b.Bytes() / t.Size(), t}
}

// Device performs operations in the order in which they are called, possibly
// asynchronously. Operations return no error: the first failure sticks and is
// returned by Sync, as on a CUDA stream. Wrong shapes are programming errors
// and panic. A Device is used by one goroutine at a time.
type Device interface {
	// Name is the kind as in the job file: "cpu", "cuda".
	Name() string
	// Info describes what was found: libraries, versions, instruction set, threads.
	Info() map[string]string

	// Alloc returns zeroed memory of the device, aligned to at least 256 bytes,
	// outside the Go heap. Host memory of a CPU device comes from mmap, so that a
	// transport may hold it across calls.
	Alloc(bytes int64) (Buffer, error) // Type U8
	Free(Buffer)
	// Host returns the bytes of b where the host can address them, else nil.
	Host(b Buffer) []byte

	CopyIn(dst Buffer, src []byte)
	CopyOut(dst []byte, src Buffer) // waits for pending operations
	Copy(dst, src Buffer)           // same size, not overlapping
	Zero(b Buffer)

	Sync() error
	Close() error

	Ops
}

// Attention is the shape of a causal grouped-query attention: query head h
// reads key/value head h/(Heads/KVHeads). Rows are Batch × Seq.
type Attention struct {
	Batch, Seq, Heads, KVHeads, HeadDim int
}

// Rows returns Batch × Seq.
func (a Attention) Rows() int { return a.Batch * a.Seq }

// QKVWidth returns the columns of the joined query, key, value matrix:
// (Heads + 2 KVHeads) × HeadDim, queries first, then keys, then values.
func (a Attention) QKVWidth() int { return (a.Heads + 2*a.KVHeads) * a.HeadDim }

// AdamW holds the hyperparameters of one step of AdamW (arXiv 1711.05101, alg. 2).
type AdamW struct {
	LR, Beta1, Beta2, Eps, WeightDecay float32
	Step                               int     // from 1, for bias correction
	GradScale                          float32 // multiplies the gradient first (clipping)
}

// SGD holds the hyperparameters of one step of SGD with momentum as in
// PyTorch: b = momentum·b + g + decay·w; w -= lr·b.
type SGD struct {
	LR, Momentum, WeightDecay float32
	GradScale                 float32
}

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
	// Gemm computes C = alpha·op(A)·op(B) + beta·C, op(A) m×k, op(B) k×n, C m×n;
	// ld* are row strides in elements of the matrices as stored. A and B are T, C is
	// F32 or T; products add up in f32 (f32 inputs: in tf32 where a device was
	// opened so). C is not read when beta is 0.
	Gemm(transA, transB bool, m, n, k int, alpha float32, a Buffer, lda int, b Buffer, ldb int, beta float32, c Buffer, ldc int)

	// EmbeddingForward gathers y[i] = table[ids[i]]; ids I32, y (T) rows×dim, table T.
	EmbeddingForward(y, table, ids Buffer, rows, dim int)
	// EmbeddingBackwardWeight scatters dtable[ids[i]] += dy[i], in order of i; dy T, dtable F32.
	EmbeddingBackwardWeight(dtable, ids, dy Buffer, rows, dim int)

	// RMSNormForward computes y = x · rstd · gamma, rstd[i] = 1/sqrt(mean(x[i]²)+eps)
	// (arXiv 1910.07467); y, x, gamma T, rstd F32.
	RMSNormForward(y, rstd, x, gamma Buffer, rows, dim int, eps float32)
	// RMSNormBackwardInput computes dx (+)= rstd·(gamma·dy − x·rstd²·mean(gamma·dy·x));
	// adds to dx when accumulate; dx, dy, x, gamma T.
	RMSNormBackwardInput(dx, dy, x, rstd, gamma Buffer, rows, dim int, accumulate bool)
	// RMSNormBackwardWeight adds Σ_rows dy·x·rstd to dgamma; dy, x T, dgamma F32.
	RMSNormBackwardWeight(dgamma, dy, x, rstd Buffer, rows, dim int)

	// LayerNormForward computes y = (x − mean)·rstd·gamma + beta per row, mean[i] the
	// row's mean, rstd[i] = 1/sqrt(mean((x[i]−mean[i])²)+eps) (arXiv 1607.06450);
	// y, x, gamma, beta T, mean and rstd F32.
	LayerNormForward(y, mean, rstd, x, gamma, beta Buffer, rows, dim int, eps float32)
	// LayerNormBackwardInput computes, with n = (x−mean)·rstd and g = gamma·dy,
	// dx (+)= rstd·(g − mean(g) − n·mean(g·n)); adds to dx when accumulate; dx, dy, x, gamma T.
	LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma Buffer, rows, dim int, accumulate bool)
	// LayerNormBackwardWeight adds Σ_rows dy·(x−mean)·rstd to dgamma and Σ_rows dy to
	// dbeta; dy, x T, dgamma and dbeta F32.
	LayerNormBackwardWeight(dgamma, dbeta, dy, x, mean, rstd Buffer, rows, dim int)

	// Rotary turns the first `heads` heads of each row of x (T, row stride ld) by the
	// row's position (row mod seq), rotate-half convention (arXiv 2104.09864, as in
	// Hugging Face LLaMA), in place; inverse turns back (the backward pass).
	Rotary(x Buffer, rows, seq, heads, headDim, ld int, theta float32, inverse bool)

	// AttentionWork returns the f32 elements of scratch that the two calls below need
	// for buffers of type t.
	AttentionWork(s Attention, t DType) int64
	// AttentionForward computes o = softmax(causal(q·kᵀ/√HeadDim))·v per head.
	// qkv (T) is rows × QKVWidth, o (T) rows × Heads·HeadDim, lse (F32) rows × Heads
	// (log-sum-exp of the scaled scores), work F32. With BF16 the probabilities may be
	// rounded to bf16 before they meet v, as tensor cores want them.
	AttentionForward(o, lse, qkv, work Buffer, s Attention)
	// AttentionBackward writes dqkv (T) from do (T); it reads what the forward saved.
	// With BF16 the probabilities and their gradients may be rounded to bf16 before
	// they meet the other operand.
	AttentionBackward(dqkv, do, o, lse, qkv, work Buffer, s Attention)

	// SwiGLUForward computes y = silu(g)·u; gu (T) is rows × 2·ffn, g first; y T.
	SwiGLUForward(y, gu Buffer, rows, ffn int)
	// SwiGLUBackward writes dgu (T) from dy and gu. dgu may be gu itself.
	SwiGLUBackward(dgu, dy, gu Buffer, rows, ffn int)

	// GELUForward computes y = x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))) element by
	// element (arXiv 1606.08415, the form of GPT-2); y, x T.
	GELUForward(y, x Buffer)
	// GELUBackward writes dx = dy · (that function's derivative at x); all T. dx may be x itself.
	GELUBackward(dx, dy, x Buffer)

	// CrossEntropyForward writes loss[i] = lse(logits[i]) − logits[i][target[i]] and
	// lse[i]; logits T, targets I32.
	CrossEntropyForward(loss, lse, logits, targets Buffer, rows, vocab int)
	// CrossEntropyBackward writes dlogits (T) = (softmax(logits) − onehot)·scale. dlogits may be logits itself.
	CrossEntropyBackward(dlogits, logits, lse, targets Buffer, rows, vocab int, scale float32)

	// Add computes dst = a + b element by element, all T; dst may be a or b.
	Add(dst, a, b Buffer)
	// Convert writes src's values as dst's type: F32 to BF16, rounded to nearest even
	// (beyond the largest: infinity; a NaN stays a NaN), or BF16 to F32. Not overlapping.
	Convert(dst, src Buffer)
	// Sum and SumSquares write one F64 into out, accumulated in f64 in a fixed order; x F32.
	Sum(out, x Buffer)
	SumSquares(out, x Buffer)

	// StepAdamW updates w, m, v from the gradient g, all F32 and of the same length.
	// low is empty, or BF16 of the same length: the new w rounded as by Convert, written
	// in the same pass.
	StepAdamW(w, g, m, v, low Buffer, p AdamW)
	// StepSGD updates w and the momentum buffer b (empty when momentum is 0) from g; low as above.
	StepSGD(w, g, b, low Buffer, p SGD)
}
