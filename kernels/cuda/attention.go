package cuda

import (
	"fmt"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// attentionBuild is one build of the attention kernels, for heads up to a width: the rows
// of a block's tile, and the shared memory in bytes.
type attentionBuild struct {
	width, threads               int
	forwardRows, backwardRows    int
	forwardShared                int
	keysShared, queriesShared    int
	forward, backwardK, backward string // kernels
}

// attentionBuilds are narrowest first.
var attentionBuilds = map[kernels.DType][]attentionBuild{
	kernels.F32:  {plainAttention("f32", 32, 64, 64), plainAttention("f32", 64, 64, 64), plainAttention("f32", 128, 64, 32), plainAttention("f32", 256, 32, 16)},
	kernels.BF16: {tensorAttention(32, 64), tensorAttention(64, 64), tensorAttention(128, 32), plainAttention("bf16", 256, 32, 16)},
}

func namedAttention(t string, a attentionBuild) attentionBuild {
	end := fmt.Sprintf("_%s_%d", t, a.width)
	a.forward, a.backwardK, a.backward = "attention_forward"+end, "attention_keys"+end, "attention_queries"+end
	return a
}

// plainAttention is src/attention.cu: tiles of f32 whose rows lie a word further apart than they are wide.
func plainAttention(t string, width, forward, backward int) attentionBuild {
	floats := func(b, wide, square int) int { return 4 * (wide*b*(width+1) + square*b*(b+1)) }
	return namedAttention(t, attentionBuild{width: width, threads: 256, forwardRows: forward, backwardRows: backward,
		forwardShared: floats(forward, 2, 1), keysShared: floats(backward, 4, 2), queriesShared: floats(backward, 4, 1)})
}

// tensorAttention is src/attention_mma.cu: tiles of 64 rows of bf16 on tensor cores, past
// which tiles of so many rows go in the backward kernels.
func tensorAttention(width, passing int) attentionBuild {
	const rows = 64
	tiles := func(n int) int { return 2 * n * (width + 8) }
	backward := tiles(2*rows + 4*passing)
	return namedAttention("bf16", attentionBuild{width: width, threads: 128, forwardRows: rows, backwardRows: rows,
		forwardShared: tiles(4 * rows), keysShared: backward + 4*4*passing, queriesShared: backward})
}

// attention returns the build for a shape.
func attention(op string, t kernels.DType, s kernels.Attention) attentionBuild {
	if s.Heads < 1 || s.KVHeads < 1 || s.Heads%s.KVHeads != 0 || s.HeadDim < 1 || s.Batch < 0 || s.Seq < 0 {
		panic(fmt.Sprintf("cuda: %s: the shape %+v is not possible", op, s))
	}
	for _, a := range attentionBuilds[t] {
		if s.HeadDim <= a.width {
			return a
		}
	}
	panic(fmt.Sprintf("cuda: %s: heads of %d %s are wider than any kernel here, of 256", op, s.HeadDim, t))
}

// AttentionWork is Device.AttentionWork, which is the same on all cards, for those who
// plan where there is none.
func AttentionWork(s kernels.Attention) int64 { return area(s.Rows(), s.Heads) }

// AttentionWork returns the f32 elements of scratch that the calls below need.
func (d *Device) AttentionWork(s kernels.Attention, _ kernels.DType) int64 { return AttentionWork(s) }

func scoreScale(s kernels.Attention) float32 { return float32(1 / math.Sqrt(float64(s.HeadDim))) }

func tilesOf(n, side int) int { return (n + side - 1) / side }

// AttentionForward computes o = softmax(causal(q·kᵀ/√HeadDim))·v per head, and the
// rows' log-sum-exp, which is f32.
func (d *Device) AttentionForward(o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	const op = "AttentionForward"
	t := float(op, "qkv", qkv)
	a := attention(op, t, s)
	rows := s.Rows()
	if rows == 0 {
		return
	}
	d.args.Reset().Addr(want(op, "o", o, t, area(rows, s.Heads*s.HeadDim))).Addr(f32(op, "lse", lse, area(rows, s.Heads))).
		Addr(want(op, "qkv", qkv, t, area(rows, s.QKVWidth()))).Int(s.Seq).Int(s.Heads).Int(s.KVHeads).Int(s.HeadDim).Float(scoreScale(s))
	d.perform(op, func() error {
		return d.launch(a.forward, kernels.U8, grid{x: tilesOf(s.Seq, a.forwardRows) * s.Batch * s.Heads, threads: a.threads, shared: a.forwardShared})
	})
}

// AttentionBackward writes dqkv from do; it reads what the forward saved.
func (d *Device) AttentionBackward(dqkv, do, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	const op = "AttentionBackward"
	t := float(op, "qkv", qkv)
	a := attention(op, t, s)
	rows := s.Rows()
	if rows == 0 {
		return
	}
	n := rows * s.Heads
	delta := f32(op, "work", work, int64(n))
	pdo, po, pl := want(op, "do", do, t, area(n, s.HeadDim)), want(op, "o", o, t, area(n, s.HeadDim)), f32(op, "lse", lse, int64(n))
	pd, pq := want(op, "dqkv", dqkv, t, area(rows, s.QKVWidth())), want(op, "qkv", qkv, t, area(rows, s.QKVWidth()))
	d.perform(op, func() error {
		d.args.Reset().Addr(delta).Addr(pdo).Addr(po).Int(n).Int(s.HeadDim)
		if err := d.launch("attention_delta", t, grid{x: (n + 7) / 8, threads: 256}); err != nil {
			return err
		}
		d.args.Reset().Addr(pd).Addr(pdo).Addr(pl).Addr(delta).Addr(pq).Int(s.Seq).Int(s.Heads).Int(s.KVHeads).Int(s.HeadDim).Float(scoreScale(s))
		tiles := tilesOf(s.Seq, a.backwardRows) * s.Batch
		if err := d.launch(a.backwardK, kernels.U8, grid{x: tiles * s.KVHeads, threads: a.threads, shared: a.keysShared}); err != nil {
			return err
		}
		return d.launch(a.backward, kernels.U8, grid{x: tiles * s.Heads, threads: a.threads, shared: a.queriesShared})
	})
}
