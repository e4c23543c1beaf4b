package kernels

// Rows work on each row or element by itself, or add them up: embedding, norms,
// rotation, activations, loss, sums.
type Rows interface {
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

	// AddBias adds b to each row of x in place; x (T) rows×dim, b (T) dim.
	AddBias(x, b Buffer, rows, dim int)
	// AddColumns adds Σ_rows dy to dbias, AddBias's gradient; dy (T) rows×dim, dbias F32.
	AddColumns(dbias, dy Buffer, rows, dim int)

	// Rotary turns the first `heads` heads of each row of x (T, row stride ld) by the
	// row's position (row mod seq), rotate-half convention (arXiv 2104.09864, as in
	// Hugging Face LLaMA), in place; inverse turns back (the backward pass).
	Rotary(x Buffer, rows, seq, heads, headDim, ld int, theta float32, inverse bool)

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
}
