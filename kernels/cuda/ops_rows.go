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
	to := []uintptr{f32(op, "dgamma", dgamma, int64(dim))}
	d.columns(op, "rmsnorm_backward_weight", t, rows, dim, to, want(op, "dy", dy, t, n), want(op, "x", x, t, n), f32(op, "rstd", rstd, int64(rows)))
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
	to := []uintptr{f32(op, "dgamma", dgamma, int64(dim)), f32(op, "dbeta", dbeta, int64(dim))}
	d.columns(op, "layernorm_backward_weight", t, rows, dim, to, want(op, "dy", dy, t, n), want(op, "x", x, t, n),
		f32(op, "mean", mean, int64(rows)), f32(op, "rstd", rstd, int64(rows)))
}

// biasColumns is bias.cu's kBiasColumns.
const biasColumns = 4096

// AddBias adds b to each row of x.
func (d *Device) AddBias(x, b kernels.Buffer, rows, dim int) {
	const op = "AddBias"
	t := float(op, "x", x)
	d.args.Reset().Addr(want(op, "x", x, t, area(rows, dim))).Addr(want(op, "b", b, t, int64(dim))).Int(dim)
	if rows == 0 || dim == 0 {
		return
	}
	d.perform(op, func() error {
		return d.launch("add_bias", t, grid{x: rows, y: tilesOf(dim, biasColumns), threads: rowThreads(min(dim, biasColumns), packOf(t), 256)})
	})
}

// AddColumns adds Σ_rows dy to dbias, which is f32.
func (d *Device) AddColumns(dbias, dy kernels.Buffer, rows, dim int) {
	const op = "AddColumns"
	t := float(op, "dy", dy)
	to := []uintptr{f32(op, "dbias", dbias, int64(dim))}
	d.columns(op, "bias_backward_weight", t, rows, dim, to, want(op, "dy", dy, t, area(rows, dim)))
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

// columns adds a kernel's sums over the rows of its inputs to `to`, a row of cols each. Blocks sum at least
// 32 rows each, in at most 128 parts, by the shape alone, so that a sum has one order.
func (d *Device) columns(op, name string, t kernels.DType, rows, cols int, to []uintptr, inputs ...uintptr) {
	if rows == 0 || cols == 0 {
		return
	}
	chunk := max(32, (tilesOf(rows, 128)+7)/8*8)
	parts, row := tilesOf(rows, chunk), len(to)*cols
	d.perform(op, func() error {
		return d.scratch(4*area(parts, row), func(scratch uintptr) error {
			d.args.Reset().Addr(scratch)
			for _, p := range inputs {
				d.args.Addr(p)
			}
			d.args.Int(rows).Int(cols).Int(chunk)
			if err := d.launch(name, t, grid{x: tilesOf(cols, 32*packOf(t)), y: parts, threads: 256}); err != nil {
				return err
			}
			for i, p := range to {
				d.args.Reset().Addr(p).Addr(scratch + uintptr(4*i*cols)).Int(parts).Long(int64(row)).Int(cols)
				if err := d.launch("add_columns", kernels.U8, grid{x: tilesOf(cols, 32), threads: 256}); err != nil {
					return err
				}
			}
			return nil
		})
	})
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
	to, pi, pd := f32(op, "dtable", dtable, 0), want(op, "ids", ids, kernels.I32, int64(rows)), want(op, "dy", dy, t, area(rows, dim))
	if rows == 0 {
		return
	}
	d.perform(op, func() error {
		return d.scratch(2*8*int64(rows), func(scratch uintptr) error {
			sorted, err := d.sortedRows(scratch, pi, rows)
			if err != nil {
				return err
			}
			d.args.Reset().Addr(to).Addr(sorted).Addr(pd).Int(rows).Int(dim).Int(vocab).Addr(d.faults.at(faultEmbeddingBackward))
			return d.launch("embedding_backward", t, grid{x: rows, y: tilesOf(dim, 512), threads: 128})
		})
	})
}

// sortedRows sorts ids with their rows in scratch of 16 bytes a row, and returns where they lie.
func (d *Device) sortedRows(scratch, ids uintptr, rows int) (uintptr, error) {
	threads := 32
	for threads < 512 && 2*threads < rows {
		threads *= 2
	}
	d.args.Reset().Addr(scratch).Addr(ids).Int(rows)
	if err := d.launch("embedding_sort", kernels.U8, grid{x: tilesOf(rows, 2*threads), threads: threads}); err != nil {
		return 0, err
	}
	from, to := scratch, scratch+8*uintptr(rows)
	for run := 2 * threads; run < rows; run *= 2 {
		d.args.Reset().Addr(to).Addr(from).Int(rows).Int(run)
		if err := d.launch("embedding_merge", kernels.U8, grid{x: tilesOf(rows, 256), threads: 256}); err != nil {
			return 0, err
		}
		from, to = to, from
	}
	return from, nil
}

func tableRows(op string, table kernels.Buffer, dim int) int {
	if dim <= 0 {
		panic("cuda: " + op + ": dim must be at least 1")
	}
	return int(table.Len) / dim
}
