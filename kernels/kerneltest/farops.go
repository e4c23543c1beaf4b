package kerneltest

import "github.com/pipetrain/pipetrain/kernels"

// farOps puts operations into the current queue, or into the recording under way.
type farOps struct {
	queue     *farQueue
	recording *farRecording
}

func (f *farOps) do(op func(d kernels.Device)) {
	if f.recording != nil {
		f.recording.ops = append(f.recording.ops, op)
		return
	}
	f.queue.add(op)
}

// Copy is kernels.Device's.
func (f *farOps) Copy(dst, src kernels.Buffer) {
	f.do(func(d kernels.Device) { d.Copy(dst, src) })
}

// Zero is kernels.Device's.
func (f *farOps) Zero(b kernels.Buffer) {
	f.do(func(d kernels.Device) { d.Zero(b) })
}

// Gemm is kernels.Ops's.
func (f *farOps) Gemm(transA, transB bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	f.do(func(d kernels.Device) { d.Gemm(transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) })
}

// EmbeddingForward is kernels.Ops's.
func (f *farOps) EmbeddingForward(y, table, ids kernels.Buffer, rows, dim int) {
	f.do(func(d kernels.Device) { d.EmbeddingForward(y, table, ids, rows, dim) })
}

// EmbeddingBackwardWeight is kernels.Ops's.
func (f *farOps) EmbeddingBackwardWeight(dtable, ids, dy kernels.Buffer, rows, dim int) {
	f.do(func(d kernels.Device) { d.EmbeddingBackwardWeight(dtable, ids, dy, rows, dim) })
}

// RMSNormForward is kernels.Ops's.
func (f *farOps) RMSNormForward(y, rstd, x, gamma kernels.Buffer, rows, dim int, eps float32) {
	f.do(func(d kernels.Device) { d.RMSNormForward(y, rstd, x, gamma, rows, dim, eps) })
}

// RMSNormBackwardInput is kernels.Ops's.
func (f *farOps) RMSNormBackwardInput(dx, dy, x, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	f.do(func(d kernels.Device) { d.RMSNormBackwardInput(dx, dy, x, rstd, gamma, rows, dim, accumulate) })
}

// RMSNormBackwardWeight is kernels.Ops's.
func (f *farOps) RMSNormBackwardWeight(dgamma, dy, x, rstd kernels.Buffer, rows, dim int) {
	f.do(func(d kernels.Device) { d.RMSNormBackwardWeight(dgamma, dy, x, rstd, rows, dim) })
}

// LayerNormForward is kernels.Ops's.
func (f *farOps) LayerNormForward(y, mean, rstd, x, gamma, beta kernels.Buffer, rows, dim int, eps float32) {
	f.do(func(d kernels.Device) { d.LayerNormForward(y, mean, rstd, x, gamma, beta, rows, dim, eps) })
}

// LayerNormBackwardInput is kernels.Ops's.
func (f *farOps) LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	f.do(func(d kernels.Device) { d.LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma, rows, dim, accumulate) })
}

// LayerNormBackwardWeight is kernels.Ops's.
func (f *farOps) LayerNormBackwardWeight(dgamma, dbeta, dy, x, mean, rstd kernels.Buffer, rows, dim int) {
	f.do(func(d kernels.Device) { d.LayerNormBackwardWeight(dgamma, dbeta, dy, x, mean, rstd, rows, dim) })
}

// Rotary is kernels.Ops's.
func (f *farOps) Rotary(x kernels.Buffer, rows, seq, heads, headDim, ld int, theta float32, inverse bool) {
	f.do(func(d kernels.Device) { d.Rotary(x, rows, seq, heads, headDim, ld, theta, inverse) })
}

// AttentionWork is kernels.Ops's.
func (f *farOps) AttentionWork(s kernels.Attention, t kernels.DType) int64 {
	return f.queue.d.AttentionWork(s, t)
}

// AttentionForward is kernels.Ops's.
func (f *farOps) AttentionForward(o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	f.do(func(d kernels.Device) { d.AttentionForward(o, lse, qkv, work, s) })
}

// AttentionBackward is kernels.Ops's.
func (f *farOps) AttentionBackward(dqkv, do, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	f.do(func(d kernels.Device) { d.AttentionBackward(dqkv, do, o, lse, qkv, work, s) })
}

// SwiGLUForward is kernels.Ops's.
func (f *farOps) SwiGLUForward(y, gu kernels.Buffer, rows, ffn int) {
	f.do(func(d kernels.Device) { d.SwiGLUForward(y, gu, rows, ffn) })
}

// SwiGLUBackward is kernels.Ops's.
func (f *farOps) SwiGLUBackward(dgu, dy, gu kernels.Buffer, rows, ffn int) {
	f.do(func(d kernels.Device) { d.SwiGLUBackward(dgu, dy, gu, rows, ffn) })
}

// GELUForward is kernels.Ops's.
func (f *farOps) GELUForward(y, x kernels.Buffer) {
	f.do(func(d kernels.Device) { d.GELUForward(y, x) })
}

// GELUBackward is kernels.Ops's.
func (f *farOps) GELUBackward(dx, dy, x kernels.Buffer) {
	f.do(func(d kernels.Device) { d.GELUBackward(dx, dy, x) })
}

// CrossEntropyForward is kernels.Ops's.
func (f *farOps) CrossEntropyForward(loss, lse, logits, targets kernels.Buffer, rows, vocab int) {
	f.do(func(d kernels.Device) { d.CrossEntropyForward(loss, lse, logits, targets, rows, vocab) })
}

// CrossEntropyBackward is kernels.Ops's.
func (f *farOps) CrossEntropyBackward(dlogits, logits, lse, targets kernels.Buffer, rows, vocab int, scale float32) {
	f.do(func(d kernels.Device) { d.CrossEntropyBackward(dlogits, logits, lse, targets, rows, vocab, scale) })
}

// Add is kernels.Ops's.
func (f *farOps) Add(dst, a, b kernels.Buffer) {
	f.do(func(d kernels.Device) { d.Add(dst, a, b) })
}

// Convert is kernels.Ops's.
func (f *farOps) Convert(dst, src kernels.Buffer) {
	f.do(func(d kernels.Device) { d.Convert(dst, src) })
}

// Sum is kernels.Ops's.
func (f *farOps) Sum(out, x kernels.Buffer) {
	f.do(func(d kernels.Device) { d.Sum(out, x) })
}

// SumSquares is kernels.Ops's.
func (f *farOps) SumSquares(out, x kernels.Buffer) {
	f.do(func(d kernels.Device) { d.SumSquares(out, x) })
}

// StepAdamW is kernels.Ops's.
func (f *farOps) StepAdamW(w, g, m, v, low kernels.Buffer, p kernels.AdamW) {
	f.do(func(d kernels.Device) { d.StepAdamW(w, g, m, v, low, p) })
}

// StepSGD is kernels.Ops's.
func (f *farOps) StepSGD(w, g, b, low kernels.Buffer, p kernels.SGD) {
	f.do(func(d kernels.Device) { d.StepSGD(w, g, b, low, p) })
}
