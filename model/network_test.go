package model

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
)

// network trains a model cut into stages, all of them here and one after
// another: what ranks do, without ranks.
type network struct {
	t      testing.TB
	dev    kernels.Device
	model  *Model
	opt    Optimizer
	stages []*stage
}

type stage struct {
	Range
	layout  *Layout
	w, g    kernels.Buffer
	states  []kernels.Buffer
	squares kernels.Buffer
}

func newNetwork(t testing.TB, dev kernels.Device, cfg Config, stages int, opt Optimizer) *network {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cut, err := m.Cut(stages)
	if err != nil {
		t.Fatal(err)
	}
	n := &network{t: t, dev: dev, model: m, opt: opt}
	for _, r := range cut {
		s := &stage{Range: r, layout: NewLayout(m.ParamsOf(r))}
		s.w, s.g = n.alloc(s.layout.Len, kernels.F32), n.alloc(s.layout.Len, kernels.F32)
		for range opt.States() {
			s.states = append(s.states, n.alloc(s.layout.Len, kernels.F32))
		}
		s.squares = n.alloc(int64(len(s.layout.Params)), kernels.F64)
		n.stages = append(n.stages, s)
	}
	return n
}

func (n *network) alloc(elems int64, t kernels.DType) kernels.Buffer {
	b, err := n.dev.Alloc(max(256, elems*t.Size()))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { n.dev.Free(b) })
	return b.Slice(0, elems*t.Size()).As(t)
}

// each calls f for every parameter of every stage.
func (n *network) each(f func(p ParamRef, w, g kernels.Buffer)) {
	for _, s := range n.stages {
		for i, p := range s.layout.Params {
			f(p, s.layout.View(s.w, i), s.layout.View(s.g, i))
		}
	}
}

// names calls f for every saved matrix of a parameter with its rows.
func (p ParamRef) names(f func(name string, from, to int64)) {
	if !p.Owned() {
		return
	}
	if p.Parts == nil {
		f(p.Name, 0, p.Len())
		return
	}
	at := int64(0)
	for _, part := range p.Parts {
		end := at + int64(part.Rows*p.Cols)
		f(part.Name, at, end)
		at = end
	}
}

// gradients runs forward and backward of one batch, a micro-batch a sequence, and
// returns the loss of each token. Texts hold seq+1 tokens.
func (n *network) gradients(texts [][]int32, concatenate bool) []float32 {
	dev, layers := n.dev, n.model.Layers
	count, one := len(texts), Shape{Batch: 1, Seq: n.model.Config.Seq}
	rows := int64(one.Rows())
	held := make([][]kernels.Buffer, len(layers))
	slot := func(layer int, name string, mb int) kernels.Buffer {
		i := SlotIndex(layers[layer], name)
		elems := layers[layer].Slots()[i].Len(one)
		return held[layer][i].Slice(int64(mb)*elems, elems)
	}
	var work int64
	for i, l := range layers {
		for _, s := range l.Slots() {
			held[i] = append(held[i], n.alloc(s.Len(one.Times(count)), s.Type))
		}
		work = max(work, l.Work(PassForward, dev, one), l.Work(PassInput, dev, one), l.Work(PassWeight, dev, one.Times(count)))
	}
	scratch, loss := n.alloc(work, kernels.F32), n.alloc(rows, kernels.F32)
	for _, s := range n.stages {
		dev.Zero(s.g)
	}
	call := func(layer, first, last int) *Call {
		c := &Call{Dev: dev, Shape: one.Times(last - first + 1), Work: scratch, LossScale: 1 / float32(int64(count)*rows)}
		for _, s := range n.stages {
			if layer >= s.First && layer < s.End {
				c.Weights, c.Grads = s.layout.Views(s.w, layer), s.layout.Views(s.g, layer)
			}
		}
		for i, s := range layers[layer].Slots() {
			elems := s.Len(one)
			c.Slots = append(c.Slots, held[layer][i].Slice(int64(first)*elems, int64(last-first+1)*elems))
		}
		return c
	}
	end := len(layers) - 1
	var losses []float32
	for k, text := range texts {
		dev.CopyIn(slot(0, SlotX, k), i32Bytes(text[:rows]))
		dev.CopyIn(slot(end, FieldTargets, k), i32Bytes(text[1:]))
		for i, l := range layers {
			c := call(i, k, k)
			if c.Out = loss; i < end {
				c.Out = slot(i+1, SlotX, k)
			}
			l.Forward(c)
		}
		losses = append(losses, readF32(dev, loss)...)
		for i := end; i >= 0; i-- {
			c := call(i, k, k)
			if i > 0 {
				c.DX = slot(i-1, SlotDY, k)
			}
			layers[i].BackwardInput(c)
			if !concatenate {
				layers[i].BackwardWeight(call(i, k, k))
			}
		}
	}
	for i := range layers {
		if concatenate {
			layers[i].BackwardWeight(call(i, 0, count-1))
		}
	}
	n.addTies()
	return losses
}

// addTies gives each copy of a tie the sum of all gradients.
func (n *network) addTies() {
	first := map[int]kernels.Buffer{}
	n.each(func(p ParamRef, _, g kernels.Buffer) {
		if p.Owned() {
			first[p.Index] = g
			return
		}
		n.dev.Add(g, g, first[p.Owner])
		n.dev.Copy(first[p.Owner], g)
	})
}

// norm returns the global norm of the gradients.
func (n *network) norm() float64 {
	var squares []float64
	for _, s := range n.stages {
		s.layout.SumSquares(n.dev, s.squares, s.g)
		raw := make([]byte, s.squares.Bytes())
		n.dev.CopyOut(raw, s.squares)
		for i := range s.layout.Params {
			squares = append(squares, math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])))
		}
	}
	return GlobalNorm(squares)
}

func (n *network) update(step int, lr float64, scale float32) {
	for _, s := range n.stages {
		n.opt.Update(n.dev, s.layout, s.w, s.g, kernels.Buffer{}, s.states, step, lr, scale)
	}
}
