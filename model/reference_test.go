package model

import "math"

// The reference writes the layers down once more, number by number, from the
// formulas of the papers; the tape derives their gradients.

// linearRef is x·wᵀ.
func (t *tape) linearRef(x, w mat) mat {
	y := make(mat, len(x))
	for i := range x {
		for o := range w {
			y[i] = append(y[i], t.dot(x[i], w[o]))
		}
	}
	return y
}

func (t *tape) rmsnormRef(x mat, gamma []num, eps float64) mat {
	y := make(mat, len(x))
	for i, row := range x {
		mean := t.scale(t.dot(row, row), 1/float64(len(row)))
		rms := t.sqrt(t.plus(mean, eps))
		for j := range row {
			y[i] = append(y[i], t.mul(gamma[j], t.div(row[j], rms)))
		}
	}
	return y
}

func (t *tape) layernormRef(x mat, gamma, beta []num, eps float64) mat {
	y := make(mat, len(x))
	for i, row := range x {
		mean := t.scale(t.sum(row), 1/float64(len(row)))
		var off []num
		for _, v := range row {
			off = append(off, t.sub(v, mean))
		}
		deviation := t.sqrt(t.plus(t.scale(t.dot(off, off), 1/float64(len(row))), eps))
		for j := range row {
			y[i] = append(y[i], t.add(t.mul(gamma[j], t.div(off[j], deviation)), beta[j]))
		}
	}
	return y
}

// normRef takes the norm's parameters, of which there are two in LayerNorm.
func (t *tape) normRef(x mat, cfg Config, p ...mat) mat {
	if cfg.Norm == NormLayer {
		return t.layernormRef(x, p[0][0], p[1][0], cfg.NormEps)
	}
	return t.rmsnormRef(x, p[0][0], cfg.NormEps)
}

// geluRef is x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), tanh z = 1 − 2/(exp(2z)+1).
func (t *tape) geluRef(x mat) mat {
	y := make(mat, len(x))
	for i := range x {
		for _, v := range x[i] {
			cube := t.mul(v, t.mul(v, v))
			z := t.scale(t.add(v, t.scale(cube, 0.044715)), math.Sqrt(2/math.Pi))
			tanh := t.plus(t.scale(t.div(t.leaf(1), t.plus(t.exp(t.scale(z, 2)), 1)), -2), 1)
			y[i] = append(y[i], t.mul(t.scale(v, 0.5), t.plus(tanh, 1)))
		}
	}
	return y
}

// rotaryRef turns the pairs (j, j+half) of one head by pos·base^(−2j/headDim).
func (t *tape) rotaryRef(head []num, pos int, base float64) []num {
	if base == 0 { // no rotary position
		return head
	}
	half := len(head) / 2
	out := make([]num, len(head))
	for j := range half {
		angle := float64(pos) * math.Pow(base, -2*float64(j)/float64(len(head)))
		sin, cos := math.Sincos(angle)
		out[j] = t.sub(t.scale(head[j], cos), t.scale(head[j+half], sin))
		out[j+half] = t.add(t.scale(head[j+half], cos), t.scale(head[j], sin))
	}
	return out
}

// biasedRef is x·wᵀ + b.
func (t *tape) biasedRef(x, w, b mat) mat {
	y := t.linearRef(x, w)
	for i := range y {
		for j := range y[i] {
			y[i][j] = t.add(y[i][j], b[0][j])
		}
	}
	return y
}

// gpt2BlockRef takes the parameters in the order of a block of GPT-2's: gains and matrices, then biases, as they come in the block.
func (t *tape) gpt2BlockRef(x mat, p []mat, cfg Config) mat {
	d := cfg.Dim
	qkv := t.biasedRef(t.normRef(x, cfg, p[0], p[6]), p[1], p[7])
	var q, k, v mat
	for _, row := range qkv {
		q, k, v = append(q, row[:d]), append(k, row[d:2*d]), append(v, row[2*d:])
	}
	h1 := t.addRef(x, t.biasedRef(t.attentionRef(q, k, v, cfg), p[2], p[8]))
	hidden := t.biasedRef(t.normRef(h1, cfg, p[3], p[9]), p[4], p[10])
	return t.addRef(h1, t.biasedRef(t.geluRef(hidden), p[5], p[11]))
}

// positionsRef are the rows of a table of positions for this many rows of sequences.
func positionsRef(rows, seq int, table mat) mat {
	var y mat
	for i := range rows {
		y = append(y, table[i%seq])
	}
	return y
}

// attentionRef is causal attention over one sequence after another.
func (t *tape) attentionRef(q, k, v mat, cfg Config) mat {
	hd := cfg.HeadDim()
	o := make(mat, len(q))
	for i := range q {
		pos := i % cfg.Seq
		for h := range cfg.Heads {
			kv := h * cfg.KVHeads / cfg.Heads * hd
			qi := t.rotaryRef(q[i][h*hd:(h+1)*hd], pos, cfg.RopeBase)
			var weights []num
			for j := range pos + 1 {
				kj := t.rotaryRef(k[i-pos+j][kv:kv+hd], j, cfg.RopeBase)
				weights = append(weights, t.exp(t.scale(t.dot(qi, kj), 1/math.Sqrt(float64(hd)))))
			}
			total := t.sum(weights)
			for c := range hd {
				acc := t.leaf(0)
				for j, w := range weights {
					acc = t.add(acc, t.mul(w, v[i-pos+j][kv+c]))
				}
				o[i] = append(o[i], t.div(acc, total))
			}
		}
	}
	return o
}

func (t *tape) addRef(a, b mat) mat {
	y := make(mat, len(a))
	for i := range a {
		for j := range a[i] {
			y[i] = append(y[i], t.add(a[i][j], b[i][j]))
		}
	}
	return y
}

// silu(g)·u = g·u/(1+exp(−g)).
func (t *tape) swigluRef(g, u mat) mat {
	y := make(mat, len(g))
	for i := range g {
		for j := range g[i] {
			gate := t.div(g[i][j], t.plus(t.exp(t.scale(g[i][j], -1)), 1))
			y[i] = append(y[i], t.mul(gate, u[i][j]))
		}
	}
	return y
}

// blockRef takes the parameters in Block's order.
func (t *tape) blockRef(x mat, p []mat, cfg Config) mat {
	q, kv := cfg.Heads*cfg.HeadDim(), cfg.KVHeads*cfg.HeadDim()
	norm1, norm2 := []mat{p[0]}, []mat{p[3]}
	if cfg.Norm == NormLayer {
		norm1, norm2 = append(norm1, p[6]), append(norm2, p[7])
	}
	n1 := t.normRef(x, cfg, norm1...)
	o := t.attentionRef(t.linearRef(n1, p[1][:q]), t.linearRef(n1, p[1][q:q+kv]), t.linearRef(n1, p[1][q+kv:]), cfg)
	h1 := t.addRef(x, t.linearRef(o, p[2]))
	n2 := t.normRef(h1, cfg, norm2...)
	return t.addRef(h1, t.mlpRef(n2, p[4], p[5], cfg))
}

func (t *tape) mlpRef(n, in, out mat, cfg Config) mat {
	if cfg.Activation == ActivationGELU {
		return t.linearRef(t.geluRef(t.linearRef(n, in)), out)
	}
	return t.linearRef(t.swigluRef(t.linearRef(n, in[:cfg.FFN]), t.linearRef(n, in[cfg.FFN:])), out)
}

// postNormRef takes the parameters in postNorm's order.
func (t *tape) postNormRef(x mat, p []mat, cfg Config) mat {
	q, kv := cfg.Heads*cfg.HeadDim(), cfg.KVHeads*cfg.HeadDim()
	norm1, norm2 := []mat{p[0]}, []mat{p[3]}
	if cfg.Norm == NormLayer {
		norm1, norm2 = append(norm1, p[6]), append(norm2, p[7])
	}
	o := t.attentionRef(t.linearRef(x, p[1][:q]), t.linearRef(x, p[1][q:q+kv]), t.linearRef(x, p[1][q+kv:]), cfg)
	h1 := t.normRef(t.addRef(x, t.linearRef(o, p[2])), cfg, norm1...)
	return t.normRef(t.addRef(h1, t.mlpRef(h1, p[4], p[5], cfg)), cfg, norm2...)
}

// headRef returns one loss a row.
func (t *tape) headRef(x mat, p []mat, targets []int32, cfg Config) mat {
	norm := []mat{p[0]}
	if cfg.Norm == NormLayer {
		norm = append(norm, p[2])
	}
	logits := t.linearRef(t.normRef(x, cfg, norm...), p[1])
	loss := make(mat, len(x))
	for i, row := range logits {
		var exps []num
		for _, z := range row {
			exps = append(exps, t.exp(z))
		}
		loss[i] = []num{t.sub(t.log(t.sum(exps)), row[targets[i]])}
	}
	return loss
}

func embedRef(ids []int32, p []mat) mat {
	y := make(mat, len(ids))
	for i, id := range ids {
		y[i] = p[0][id]
	}
	return y
}

// objective is what gradients are taken of: Σ dy·y for a layer, LossScale·Σ loss for the head.
func (t *tape) objective(y mat, dy []float64) num {
	s := t.leaf(0)
	for i, row := range y {
		for j, n := range row {
			s = t.add(s, t.scale(n, dy[i*len(row)+j]))
		}
	}
	return s
}
