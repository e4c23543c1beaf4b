package rank

import (
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// store owns what the micro-batches in flight keep on one stage: it allocates their memory, tells where a
// matrix lies in it, and gives it back. What lives until I belongs to one micro-batch (its frame), what W reads to
// all micro-batches that one W covers (their group).
type store struct {
	arena   *kernels.Arena
	layers  []model.Layer
	shape   model.Shape // of one micro-batch
	ranges  []groupRange
	layouts map[int]*layout // by micro-batches
	frames  map[int]*frame
	groups  map[int]*group // by first micro-batch
	leaving map[leaving]kernels.Block
}

// groupRange is the range of micro-batches that the W of a micro-batch covers.
type groupRange struct{ first, last int }

// group holds what the micro-batches of one W keep until it: made when the
// first of them needs it, freed after the W.
type group struct {
	groupRange
	blocks [3]kernels.Block // UntilWeight and FromInput
	have   [3]bool
}

// frame is what one micro-batch has for itself.
type frame struct {
	keep    kernels.Block // UntilInput
	hasKeep bool
	dy      kernels.Block // the gradient of the output, where B is fused
	hasDY   bool
}

// leaving names what goes to a peer: by SEND_F the output of a micro-batch, by SEND_B the gradient of its input.
type leaving struct {
	kind schedule.Kind
	mb   int
}

// newStore returns the store of a stage on which each micro-batch has a W of its own, until join says otherwise.
func newStore(arena *kernels.Arena, layers []model.Layer, shape model.Shape, microbatches int) *store {
	k := &store{arena: arena, layers: layers, shape: shape, ranges: make([]groupRange, microbatches),
		layouts: map[int]*layout{}, frames: map[int]*frame{}, groups: map[int]*group{}, leaving: map[leaving]kernels.Block{}}
	for mb := range k.ranges {
		k.join(mb, mb)
	}
	return k
}

// join lets one W cover the micro-batches first to last.
func (k *store) join(first, last int) {
	for mb := first; mb <= last; mb++ {
		k.ranges[mb] = groupRange{first, last}
	}
}

func (k *store) frame(mb int) *frame {
	f := k.frames[mb]
	if f == nil {
		f = &frame{}
		k.frames[mb] = f
	}
	return f
}

func (k *store) layout(n int) *layout {
	l := k.layouts[n]
	if l == nil {
		l = newLayout(k.layers, k.shape, n)
		k.layouts[n] = l
	}
	return l
}

// need makes sure that the memory of a life exists for a micro-batch.
func (k *store) need(life model.Life, mb int) error {
	if life == model.UntilInput {
		f := k.frame(mb)
		if f.hasKeep {
			return nil
		}
		b, err := k.arena.Alloc(k.layout(1).total[life], catActivations)
		f.keep, f.hasKeep = b, err == nil
		return err
	}
	r := k.ranges[mb]
	g := k.groups[r.first]
	if g == nil {
		g = &group{groupRange: r}
		k.groups[r.first] = g
	}
	if g.have[life] {
		return nil
	}
	category := catActivations
	if life == model.FromInput {
		category = catP2Inputs
	}
	b, err := k.arena.Alloc(k.layout(r.last - r.first + 1).total[life], category)
	g.blocks[life], g.have[life] = b, err == nil
	return err
}

// slot returns the matrix of one micro-batch in a slot whose block exists; empty when dead.
func (k *store) slot(layer, slot, mb int) kernels.Buffer {
	spec := k.layers[layer].Slots()[slot]
	bytes := spec.Bytes(k.shape)
	if spec.Life == model.UntilInput {
		f := k.frame(mb)
		if !f.hasKeep {
			return kernels.Buffer{}
		}
		return f.keep.Slice(k.layout(1).off[layer][slot], bytes).As(spec.Type)
	}
	g := k.groups[k.ranges[mb].first]
	if g == nil || !g.have[spec.Life] {
		return kernels.Buffer{}
	}
	l := k.layout(g.last - g.first + 1)
	return g.blocks[spec.Life].Slice(l.off[layer][slot]+int64(mb-g.first)*bytes, bytes).As(spec.Type)
}

// groupSlot returns the matrix of all micro-batches of a group.
func (k *store) groupSlot(layer, slot int, g *group) kernels.Buffer {
	spec := k.layers[layer].Slots()[slot]
	if spec.Life == model.UntilInput || !g.have[spec.Life] {
		return kernels.Buffer{}
	}
	n := g.last - g.first + 1
	bytes := spec.Bytes(k.shape.Times(n))
	return g.blocks[spec.Life].Slice(k.layout(n).off[layer][slot], bytes).As(spec.Type)
}

// group returns the group of a W, nil where its micro-batches kept nothing together.
func (k *store) group(first, last int) *group {
	if g := k.groups[first]; g != nil && g.last == last {
		return g
	}
	return nil
}

// gradient returns where the gradient of a fused micro-batch's output belongs, making room for it.
func (k *store) gradient(mb int, of model.Matrix) (kernels.Buffer, error) {
	f := k.frame(mb)
	if !f.hasDY {
		b, err := k.arena.Alloc(of.Bytes(k.shape), catTransfers)
		if err != nil {
			return kernels.Buffer{}, err
		}
		f.dy, f.hasDY = b, true
	}
	return f.dy.As(of.Type), nil
}

// takeGradient hands the memory of gradient over to the caller, who frees it.
func (k *store) takeGradient(mb int) (kernels.Block, bool) {
	f := k.frame(mb)
	b, ok := f.dy, f.hasDY
	f.dy, f.hasDY = kernels.Block{}, false
	return b, ok
}

// leave makes room for what a SEND takes to a peer.
func (k *store) leave(kind schedule.Kind, mb int, of model.Matrix) (kernels.Buffer, error) {
	b, err := k.arena.Alloc(of.Bytes(k.shape), catTransfers)
	if err != nil {
		return kernels.Buffer{}, err
	}
	k.leaving[leaving{kind, mb}] = b
	return b.As(of.Type), nil
}

// takeLeaving hands the memory of leave over to the caller, who frees it; empty where there is none.
func (k *store) takeLeaving(kind schedule.Kind, mb int) kernels.Block {
	b := k.leaving[leaving{kind, mb}]
	delete(k.leaving, leaving{kind, mb})
	return b
}

// endInput frees what a micro-batch kept until its I.
func (k *store) endInput(mb int) {
	f := k.frame(mb)
	k.arena.Free(f.keep)
	f.keep, f.hasKeep = kernels.Block{}, false
}

// end forgets the micro-batches of a group after their W and returns their memory, to be freed by the caller.
func (k *store) end(g *group) (blocks []kernels.Block) {
	for life := range g.blocks {
		if g.have[life] {
			blocks = append(blocks, g.blocks[life])
		}
	}
	delete(k.groups, g.first)
	for mb := g.first; mb <= g.last; mb++ {
		delete(k.frames, mb)
	}
	return blocks
}
