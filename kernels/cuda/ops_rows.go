package cuda

import "github.com/pipetrain/pipetrain/kernels"

// RMSNormForward computes y = x · rstd · gamma.
func (d *Device) RMSNormForward(y, rstd, x, gamma kernels.Buffer, rows, dim int, eps float32) {
	const op = "RMSNormForward"
	t, n := float(op, "x", x), area(rows, dim)
	d.args.Reset().Addr(want(op, "y", y, t, n)).Addr(f32(op, "rstd", rstd, int64(rows))).Addr(want(op, "x", x, t, n)).
		Addr(want(op, "gamma", gamma, t, int64(dim))).Int(dim).Float(eps)
	d.rows(op, "rmsnorm_forward", t, rows, dim, 1024)
}

// RMSNormBackwardInput computes dx (+)= rstd·(gamma·dy − x·rstd²·mean(gamma·dy·x)).
func (d *Device) RMSNormBackwardInput(dx, dy, x, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	const op = "RMSNormBackwardInput"
	t, n := float(op, "x", x), area(rows, dim)
	d.args.Reset().Addr(want(op, "dx", dx, t, n)).Addr(want(op, "dy", dy, t, n)).Addr(want(op, "x", x, t, n)).
		Addr(f32(op, "rstd", rstd, int64(rows))).Addr(want(op, "gamma", gamma, t, int64(dim))).Int(dim).Int(flag(accumulate))
	d.rows(op, "rmsnorm_backward_input", t, rows, dim, 1024)
}

// RMSNormBackwardWeight adds Σ_rows dy·x·rstd to dgamma, which is f32.
func (d *Device) RMSNormBackwardWeight(dgamma, dy, x, rstd kernels.Buffer, rows, dim int) {
	const op = "RMSNormBackwardWeight"
	t, n := float(op, "x", x), area(rows, dim)
	d.args.Reset().Addr(f32(op, "dgamma", dgamma, int64(dim))).Addr(want(op, "dy", dy, t, n)).Addr(want(op, "x", x, t, n)).
		Addr(f32(op, "rstd", rstd, int64(rows))).Int(rows).Int(dim)
	d.columns(op, "rmsnorm_backward_weight", t, rows, dim)
}

// LayerNormForward computes y = (x − mean)·rstd·gamma + beta per row.
func (d *Device) LayerNormForward(y, mean, rstd, x, gamma, beta kernels.Buffer, rows, dim int, eps float32) {
	const op = "LayerNormForward"
	t, n := float(op, "x", x), area(rows, dim)
	d.args.Reset().Addr(want(op, "y", y, t, n)).Addr(f32(op, "mean", mean, int64(rows))).Addr(f32(op, "rstd", rstd, int64(rows))).
		Addr(want(op, "x", x, t, n)).Addr(want(op, "gamma", gamma, t, int64(dim))).Addr(want(op, "beta", beta, t, int64(dim))).Int(dim).Float(eps)
	d.rows(op, "layernorm_forward", t, rows, dim, 1024)
}

// LayerNormBackwardInput computes dx (+)= rstd·(g − mean(g) − n·mean(g·n)) with
// n = (x−mean)·rstd and g = gamma·dy.
func (d *Device) LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	const op = "LayerNormBackwardInput"
	t, n := float(op, "x", x), area(rows, dim)
	d.args.Reset().Addr(want(op, "dx", dx, t, n)).Addr(want(op, "dy", dy, t, n)).Addr(want(op, "x", x, t, n)).
		Addr(f32(op, "mean", mean, int64(rows))).Addr(f32(op, "rstd", rstd, int64(rows))).
		Addr(want(op, "gamma", gamma, t, int64(dim))).Int(dim).Int(flag(accumulate))
	d.rows(op, "layernorm_backward_input", t, rows, dim, 1024)
}

// LayerNormBackwardWeight adds Σ_rows dy·(x−mean)·rstd to dgamma and Σ_rows dy to dbeta.
func (d *Device) LayerNormBackwardWeight(dgamma, dbeta, dy, x, mean, rstd kernels.Buffer, rows, dim int) {
	const op = "LayerNormBackwardWeight"
	t, n := float(op, "x", x), area(rows, dim)
	d.args.Reset().Addr(f32(op, "dgamma", dgamma, int64(dim))).Addr(f32(op, "dbeta", dbeta, int64(dim))).
		Addr(want(op, "dy", dy, t, n)).Addr(want(op, "x", x, t, n)).
		Addr(f32(op, "mean", mean, int64(rows))).Addr(f32(op, "rstd", rstd, int64(rows))).Int(rows).Int(dim)
	d.columns(op, "layernorm_backward_weight", t, rows, dim)
}

// rows launches a block for each row of n elements.
func (d *Device) rows(op, name string, t kernels.DType, rows, n, most int) {
	if rows == 0 {
		return
	}
	d.perform(op, func() error {
		return d.launch(name, t, grid{x: rows, threads: rowThreads(n, packOf(t), most)})
	})
}

// columns launches a block for each 32 columns.
func (d *Device) columns(op, name string, t kernels.DType, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	d.perform(op, func() error { return d.launch(name, t, grid{x: (cols + 31) / 32, threads: 1024}) })
}

// SwiGLUForward computes y = silu(g)·u.
func (d *Device) SwiGLUForward(y, gu kernels.Buffer, rows, ffn int) {
	const op = "SwiGLUForward"
	t := float(op, "gu", gu)
	d.args.Reset().Addr(want(op, "y", y, t, area(rows, ffn))).Addr(want(op, "gu", gu, t, area(rows, 2*ffn))).Int(ffn)
	d.rows(op, "swiglu_forward", t, rows, ffn, 256)
}

// SwiGLUBackward writes dgu from dy and gu. dgu may be gu itself.
func (d *Device) SwiGLUBackward(dgu, dy, gu kernels.Buffer, rows, ffn int) {
	const op = "SwiGLUBackward"
	t := float(op, "gu", gu)
	d.args.Reset().Addr(want(op, "dgu", dgu, t, area(rows, 2*ffn))).Addr(want(op, "dy", dy, t, area(rows, ffn))).
		Addr(want(op, "gu", gu, t, area(rows, 2*ffn))).Int(ffn)
	d.rows(op, "swiglu_backward", t, rows, ffn, 256)
}

// CrossEntropyForward writes loss[i] = lse(logits[i]) − logits[i][target[i]] and lse[i].
func (d *Device) CrossEntropyForward(loss, lse, logits, targets kernels.Buffer, rows, vocab int) {
	const op = "CrossEntropyForward"
	t := float(op, "logits", logits)
	d.args.Reset().Addr(f32(op, "loss", loss, int64(rows))).Addr(f32(op, "lse", lse, int64(rows))).
		Addr(want(op, "logits", logits, t, area(rows, vocab))).Addr(want(op, "targets", targets, kernels.I32, int64(rows))).
		Int(vocab).Addr(d.faults.at(faultLossForward))
	d.rows(op, "crossentropy_forward", t, rows, vocab, 1024)
}

// CrossEntropyBackward writes dlogits = (softmax(logits) − onehot)·scale. dlogits may be logits itself.
func (d *Device) CrossEntropyBackward(dlogits, logits, lse, targets kernels.Buffer, rows, vocab int, scale float32) {
	const op = "CrossEntropyBackward"
	t := float(op, "logits", logits)
	d.args.Reset().Addr(want(op, "dlogits", dlogits, t, area(rows, vocab))).Addr(want(op, "logits", logits, t, area(rows, vocab))).
		Addr(f32(op, "lse", lse, int64(rows))).Addr(want(op, "targets", targets, kernels.I32, int64(rows))).
		Int(vocab).Float(scale).Addr(d.faults.at(faultLossBackward))
	d.rows(op, "crossentropy_backward", t, rows, vocab, 1024)
}

// EmbeddingForward gathers y[i] = table[ids[i]].
func (d *Device) EmbeddingForward(y, table, ids kernels.Buffer, rows, dim int) {
	const op = "EmbeddingForward"
	t, vocab := float(op, "table", table), tableRows(op, table, dim)
	d.args.Reset().Addr(want(op, "y", y, t, area(rows, dim))).Addr(table.Addr).Addr(want(op, "ids", ids, kernels.I32, int64(rows))).
		Int(dim).Int(vocab).Addr(d.faults.at(faultEmbeddingForward))
	d.rows(op, "embedding_forward", t, rows, dim, 256)
}

// EmbeddingBackwardWeight scatters dtable[ids[i]] += dy[i], in order of i. dtable is f32.
func (d *Device) EmbeddingBackwardWeight(dtable, ids, dy kernels.Buffer, rows, dim int) {
	const op = "EmbeddingBackwardWeight"
	t, vocab := float(op, "dy", dy), tableRows(op, dtable, dim)
	d.args.Reset().Addr(f32(op, "dtable", dtable, 0)).Addr(want(op, "ids", ids, kernels.I32, int64(rows))).
		Addr(want(op, "dy", dy, t, area(rows, dim))).Int(rows).Int(dim).Int(vocab).Addr(d.faults.at(faultEmbeddingBackward))
	if rows == 0 {
		return
	}
	d.perform(op, func() error {
		return d.launch("embedding_backward", t, grid{x: rows, y: (dim + 511) / 512, threads: 128})
	})
}

func tableRows(op string, table kernels.Buffer, dim int) int {
	if dim <= 0 {
		panic("cuda: " + op + ": dim must be at least 1")
	}
	return int(table.Len) / dim
}
