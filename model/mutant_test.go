package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
)

// mutant breaks one operation of a device, the one numbered at: it leaves it
// out, or scales what it wrote by a part in a thousand. A suite that does not
// notice would not notice a wrong layer either.
type mutant struct {
	kernels.Device
	at, seen int
	scale    bool
	name     string // of the broken operation
}

func (m *mutant) op(name string, do func(), outputs ...kernels.Buffer) {
	m.seen++
	if m.seen-1 != m.at {
		do()
		return
	}
	m.name = name
	if !m.scale {
		return
	}
	do()
	for _, b := range outputs {
		v := readF32(m.Device, b)
		for i := range v {
			v[i] *= 1.001
		}
		m.Device.CopyIn(b, f32Bytes(v))
	}
}

func (m *mutant) Copy(dst, src kernels.Buffer) {
	m.op("Copy", func() { m.Device.Copy(dst, src) }, dst)
}

func (m *mutant) Gemm(ta, tb bool, rows, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	m.op("Gemm", func() { m.Device.Gemm(ta, tb, rows, n, k, alpha, a, lda, b, ldb, beta, c, ldc) }, c.Slice(0, int64(rows*n)))
}

func (m *mutant) EmbeddingForward(y, table, ids kernels.Buffer, rows, dim int) {
	m.op("EmbeddingForward", func() { m.Device.EmbeddingForward(y, table, ids, rows, dim) }, y)
}

func (m *mutant) EmbeddingBackwardWeight(dtable, ids, dy kernels.Buffer, rows, dim int) {
	m.op("EmbeddingBackwardWeight", func() { m.Device.EmbeddingBackwardWeight(dtable, ids, dy, rows, dim) }, dtable)
}

func (m *mutant) RMSNormForward(y, rstd, x, gamma kernels.Buffer, rows, dim int, eps float32) {
	m.op("RMSNormForward", func() { m.Device.RMSNormForward(y, rstd, x, gamma, rows, dim, eps) }, y)
}

func (m *mutant) RMSNormBackwardInput(dx, dy, x, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	m.op("RMSNormBackwardInput", func() { m.Device.RMSNormBackwardInput(dx, dy, x, rstd, gamma, rows, dim, accumulate) }, dx)
}

func (m *mutant) RMSNormBackwardWeight(dgamma, dy, x, rstd kernels.Buffer, rows, dim int) {
	m.op("RMSNormBackwardWeight", func() { m.Device.RMSNormBackwardWeight(dgamma, dy, x, rstd, rows, dim) }, dgamma)
}

func (m *mutant) LayerNormForward(y, mean, rstd, x, gamma, beta kernels.Buffer, rows, dim int, eps float32) {
	m.op("LayerNormForward", func() { m.Device.LayerNormForward(y, mean, rstd, x, gamma, beta, rows, dim, eps) }, y)
}

func (m *mutant) LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma kernels.Buffer, rows, dim int, accumulate bool) {
	m.op("LayerNormBackwardInput", func() { m.Device.LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma, rows, dim, accumulate) }, dx)
}

func (m *mutant) LayerNormBackwardWeight(dgamma, dbeta, dy, x, mean, rstd kernels.Buffer, rows, dim int) {
	m.op("LayerNormBackwardWeight", func() { m.Device.LayerNormBackwardWeight(dgamma, dbeta, dy, x, mean, rstd, rows, dim) }, dgamma, dbeta)
}

func (m *mutant) AddBias(x, b kernels.Buffer, rows, dim int) {
	m.op("AddBias", func() { m.Device.AddBias(x, b, rows, dim) }, x)
}

func (m *mutant) AddColumns(dbias, dy kernels.Buffer, rows, dim int) {
	m.op("AddColumns", func() { m.Device.AddColumns(dbias, dy, rows, dim) }, dbias)
}

func (m *mutant) GELUForward(y, x kernels.Buffer) {
	m.op("GELUForward", func() { m.Device.GELUForward(y, x) }, y)
}

func (m *mutant) GELUBackward(dx, dy, x kernels.Buffer) {
	m.op("GELUBackward", func() { m.Device.GELUBackward(dx, dy, x) }, dx)
}

func (m *mutant) Rotary(x kernels.Buffer, rows, seq, heads, headDim, ld int, theta float32, inverse bool) {
	m.op("Rotary", func() { m.Device.Rotary(x, rows, seq, heads, headDim, ld, theta, inverse) }, x)
}

func (m *mutant) AttentionForward(o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	m.op("AttentionForward", func() { m.Device.AttentionForward(o, lse, qkv, work, s) }, o)
}

func (m *mutant) AttentionBackward(dqkv, do, o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	m.op("AttentionBackward", func() { m.Device.AttentionBackward(dqkv, do, o, lse, qkv, work, s) }, dqkv)
}

func (m *mutant) SwiGLUForward(y, gu kernels.Buffer, rows, ffn int) {
	m.op("SwiGLUForward", func() { m.Device.SwiGLUForward(y, gu, rows, ffn) }, y)
}

func (m *mutant) SwiGLUBackward(dgu, dy, gu kernels.Buffer, rows, ffn int) {
	m.op("SwiGLUBackward", func() { m.Device.SwiGLUBackward(dgu, dy, gu, rows, ffn) }, dgu)
}

func (m *mutant) CrossEntropyForward(loss, lse, logits, targets kernels.Buffer, rows, vocab int) {
	m.op("CrossEntropyForward", func() { m.Device.CrossEntropyForward(loss, lse, logits, targets, rows, vocab) }, loss)
}

func (m *mutant) CrossEntropyBackward(dlogits, logits, lse, targets kernels.Buffer, rows, vocab int, scale float32) {
	m.op("CrossEntropyBackward", func() { m.Device.CrossEntropyBackward(dlogits, logits, lse, targets, rows, vocab, scale) }, dlogits)
}

// TestMutantsAreNoticed breaks every operation that a layer performs, one at a time.
func TestMutantsAreNoticed(t *testing.T) {
	dev := openCPU(t)
	for _, name := range sortedKeys(trials()) {
		if !strings.HasPrefix(name, "odd/") && !strings.HasPrefix(name, "gpt/") && !strings.HasPrefix(name, "gpt2/") && name != "grouped/block" {
			continue // the same operations in other shapes
		}
		t.Run(name, func(t *testing.T) {
			tr := trials()[name]
			counter := &mutant{Device: dev, at: -1}
			if err := tr.check(counter, fused(tr.n)); err != nil {
				t.Fatal(err)
			}
			if counter.seen == 0 {
				t.Fatal("no operation was seen")
			}
			for at := range counter.seen {
				for _, scale := range []bool{false, true} {
					m := &mutant{Device: dev, at: at, scale: scale}
					if err := tr.check(m, fused(tr.n)); err == nil {
						t.Errorf("operation %d, %s, scaled %v: not noticed", at, m.name, scale)
					}
				}
			}
		})
	}
}

// careless breaks the rules of memory instead of the numbers.
type careless struct {
	Layer
	spoil func(p Pass, c *Call)
}

func (l careless) Forward(c *Call)        { l.Layer.Forward(c); l.spoil(PassForward, c) }
func (l careless) BackwardInput(c *Call)  { l.Layer.BackwardInput(c); l.spoil(PassInput, c) }
func (l careless) BackwardWeight(c *Call) { l.spoil(PassWeight, c); l.Layer.BackwardWeight(c) }

// TestCarelessLayersAreNoticed: the harness sees a layer that reads what is dead
// or writes what is not its own.
func TestCarelessLayersAreNoticed(t *testing.T) {
	dev := openCPU(t)
	beyond := func(b kernels.Buffer) kernels.Buffer {
		return kernels.Buffer{Addr: b.Addr + uintptr(b.Bytes()), Len: 1, Type: b.Type}
	}
	for name, spoil := range map[string]func(p Pass, c *Call){
		"changes a weight": func(_ Pass, c *Call) { c.Dev.Zero(c.Weights[0]) },
		"writes beyond its scratch": func(p Pass, c *Call) {
			c.Dev.Zero(beyond(c.Work))
		},
		"writes beyond its output": func(p Pass, c *Call) {
			if p == PassForward {
				c.Dev.Zero(beyond(c.Out))
			}
		},
		"overwrites a gradient": func(p Pass, c *Call) {
			if p == PassWeight {
				c.Dev.Zero(c.Grads[2])
			}
		},
		"overwrites its input in backward-p1": func(p Pass, c *Call) {
			if p == PassInput {
				c.Dev.Zero(c.Slots[0])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := trials()["odd/block"]
			tr.layer = careless{tr.layer, spoil}
			if err := tr.check(dev, fused(tr.n)); err == nil {
				t.Error("not noticed")
			}
		})
	}
	// A gradient that is kept for backward-p2 is read there.
	for _, name := range []string{SlotDY, "dn2", "dh1", "dqkv", "dn1"} {
		tr := trials()["odd/block"]
		slot := SlotIndex(tr.layer, name)
		tr.layer = careless{tr.layer, func(p Pass, c *Call) {
			if p == PassWeight {
				c.Dev.Zero(c.Slots[slot])
			}
		}}
		if err := tr.check(dev, fused(tr.n)); err == nil {
			t.Errorf("%s lost before backward-p2: not noticed", name)
		}
	}
	// A slot that claims a shorter life than it needs.
	for _, name := range []string{SlotX, "o", "h1", "rstd1", "rstd2", "hidden", "act"} {
		tr := trials()["odd/block"]
		tr.layer = shortened{tr.layer, SlotIndex(tr.layer, name)}
		if err := mayPanic(func() error { return tr.check(dev, split(tr.n)) }); err == nil {
			t.Errorf("%s freed at backward-p1: not noticed", name)
		}
	}
}

// shortened frees one slot at backward-p1.
type shortened struct {
	Layer
	slot int
}

func (l shortened) Slots() []Slot {
	s := slices.Clone(l.Layer.Slots())
	s[l.slot].Life = UntilInput
	return s
}

// mayPanic returns a panic as an error: a device refuses an empty buffer.
func mayPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// TestWrongNumbersAreNoticed: a layer with a slightly other constant than the reference's.
func TestWrongNumbersAreNoticed(t *testing.T) {
	dev := openCPU(t)
	for what, change := range map[string]func(tr *trial, c *Config){
		"rope_base":      func(_ *trial, c *Config) { c.RopeBase *= 1.05 },
		"norm_eps":       func(_ *trial, c *Config) { c.NormEps *= 1.05 },
		"as many heads":  func(_ *trial, c *Config) { c.Heads, c.KVHeads = 2*c.Heads, 2*c.KVHeads },
		"positions of 3": func(tr *trial, c *Config) { tr.shape = Shape{Batch: 3, Seq: 3} },
	} {
		cfg := trials()["one-kv-head/block"].cfg
		tr := newTrial(cfg, NewBlock(cfg, 0), 1, 1)
		tr.expected()
		change(tr, &cfg)
		tr.layer = NewBlock(cfg, 0)
		if err := tr.check(dev, fused(1)); err == nil {
			t.Errorf("%s: not noticed", what)
		}
	}
	tr := trials()["odd/head"]
	tr.expected()
	tr.scale *= 1.001
	if err := tr.check(dev, fused(tr.n)); err == nil {
		t.Error("loss scale: not noticed")
	}
}
