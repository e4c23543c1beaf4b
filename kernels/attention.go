package kernels

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

// Attentions mix the rows of a sequence.
type Attentions interface {
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
}
