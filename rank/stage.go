package rank

import (
	"fmt"

	"github.com/pipetrain/pipetrain/data"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
)

// stage is one stage of the model on this rank: its parameters, and the passes of its layers.
type stage struct {
	index  int
	base   int // the model's index of layers[0]
	layers []model.Layer
	shape  model.Shape   // of one micro-batch
	typ    kernels.DType // of activations, messages and the weights that layers read
	first  bool          // has the model's first layer
	last   bool          // has the loss

	arena *kernels.Arena
	dev   kernels.Device

	params  *model.Layout // of the flat buffers
	weights kernels.Block
	rounded kernels.Block // the weights in typ; empty where that is F32
	grads   kernels.Block
	states  []kernels.Block // the optimizer's

	wBuf, gBuf [][]kernels.Buffer // [layer][param], views of the flat buffers: what layers read, and add to

	fused []bool // by micro-batch: the program has its B instead of I and W
	kept  *store // of the micro-batches in flight

	versions  *versions // nil unless the schedule is asynchronous
	squares   []float64 // squared gradient norms of the step's updates so far, by parameter; asynchronous only
	fields    []field   // slots that the data source fills
	number    int       // of the replica's first micro-batch, over all replicas
	lossScale []float32 // by micro-batch
	scratch   [3]int64  // f32 elements of work for one micro-batch, by pass
	slotsTmp  [][]kernels.Buffer
}

// views returns the parameters within a flat buffer, by layer.
func (s *stage) views(flat kernels.Buffer) [][]kernels.Buffer {
	var out [][]kernels.Buffer
	for i := range s.layers {
		out = append(out, s.params.Views(flat, s.base+i))
	}
	return out
}

// readWeights returns the flat buffer of the weights that layers read.
func (s *stage) readWeights() kernels.Buffer {
	if s.typ == kernels.F32 {
		return s.weights.As(kernels.F32)
	}
	return s.rounded.As(s.typ)
}

// round brings what layers read up to the weights, where an update has not done so.
func (s *stage) round() {
	if s.typ != kernels.F32 {
		s.dev.Convert(s.readWeights(), s.weights.As(kernels.F32))
	}
}

// field is a slot that the data source fills.
type field struct {
	layer, slot int
	name        string
	bytes       int64 // of a micro-batch
}

// expectInput returns where the stage's input of a micro-batch belongs, making room for it.
func (s *stage) expectInput(mb int) (kernels.Buffer, error) {
	x := model.SlotIndex(s.layers[0], model.SlotX)
	if err := s.kept.need(s.layers[0].Slots()[x].Life, mb); err != nil {
		return kernels.Buffer{}, err
	}
	return s.kept.slot(0, x, mb), nil
}

// expectGradient returns where the gradient of the stage's output belongs.
func (s *stage) expectGradient(mb int) (kernels.Buffer, error) {
	end := len(s.layers) - 1
	if !s.fused[mb] {
		if err := s.kept.need(model.FromInput, mb); err != nil {
			return kernels.Buffer{}, err
		}
		return s.kept.slot(end, model.SlotIndex(s.layers[end], model.SlotDY), mb), nil
	}
	return s.kept.gradient(mb, s.out())
}

// in and out are the stage's input and output.
func (s *stage) in() model.Matrix  { return s.layers[0].In() }
func (s *stage) out() model.Matrix { return s.layers[len(s.layers)-1].Out() }

// work allocates the scratch of a pass over all layers: the largest need.
func (s *stage) work(p model.Pass, n int) (kernels.Block, error) {
	var most int64
	if n == 1 {
		most = s.scratch[p]
	} else {
		for _, l := range s.layers {
			most = max(most, l.Work(p, s.dev, s.shape.Times(n)))
		}
	}
	return s.arena.Alloc(most*4, catScratch)
}

// Forward performs F of a micro-batch. sample has the fields that the data source fills;
// out is where the output goes, of the last stage the losses.
func (s *stage) forward(mb int, out kernels.Buffer, sample data.Sample) error {
	if s.first {
		if _, err := s.expectInput(mb); err != nil {
			return err
		}
	}
	if err := s.kept.need(model.UntilInput, mb); err != nil {
		return err
	}
	if err := s.kept.need(model.UntilWeight, mb); err != nil {
		return err
	}
	w, err := s.work(model.PassForward, 1)
	if err != nil {
		return err
	}
	defer s.arena.Free(w)
	for _, f := range s.fields {
		s.dev.CopyIn(s.kept.slot(f.layer, f.slot, mb), sample[f.name])
	}
	end := len(s.layers) - 1
	for i, l := range s.layers {
		c := s.call(i, mb, w)
		for j := range c.Slots {
			c.Slots[j] = s.kept.slot(i, j, mb)
		}
		c.Out = out
		if i < end {
			c.Out = s.kept.slot(i+1, model.SlotIndex(s.layers[i+1], model.SlotX), mb)
		}
		l.Forward(c)
	}
	return nil
}

// backwardInput performs I of a micro-batch; dx is where the gradient of the
// stage's input goes, empty for the first stage.
func (s *stage) backwardInput(mb int, dx kernels.Buffer) error {
	if err := s.kept.need(model.FromInput, mb); err != nil {
		return err
	}
	w, err := s.work(model.PassInput, 1)
	if err != nil {
		return err
	}
	for i := len(s.layers) - 1; i >= 0; i-- {
		c := s.call(i, mb, w)
		for j := range c.Slots {
			c.Slots[j] = s.kept.slot(i, j, mb)
		}
		c.DX = dx
		if i > 0 {
			c.DX = s.kept.slot(i-1, model.SlotIndex(s.layers[i-1], model.SlotDY), mb)
		}
		s.layers[i].BackwardInput(c)
	}
	s.arena.Free(w)
	s.kept.endInput(mb)
	return nil
}

// backwardWeight performs the W of micro-batches first to last by way of run, and
// returns what they kept, to be freed when the device is done with it. The number given
// to run tells the memory that the operations touch.
func (s *stage) backwardWeight(first, last int, run func(memory uint64, ops func()) error) ([]kernels.Block, error) {
	g := s.kept.group(first, last)
	if g == nil {
		return nil, fmt.Errorf("stage %d: W of micro-batches %d-%d, which were not kept together", s.index, first, last)
	}
	n := last - first + 1
	w, err := s.work(model.PassWeight, n)
	if err != nil {
		return nil, err
	}
	if err := run(s.memoryOf(g, w), func() {
		for i := len(s.layers) - 1; i >= 0; i-- {
			c := s.call(i, first, w)
			c.Shape = c.Shape.Times(n)
			for j := range c.Slots {
				c.Slots[j] = s.kept.groupSlot(i, j, g)
			}
			s.layers[i].BackwardWeight(c)
		}
	}); err != nil {
		return nil, err
	}
	return append(s.drop(g), w), nil
}

// memoryOf is a number that tells where W finds what it reads: another number, other
// addresses. (FNV-1a.)
func (s *stage) memoryOf(g *group, work kernels.Block) uint64 {
	h := uint64(14695981039346656037)
	add := func(x uint64) { h = (h ^ x) * 1099511628211 }
	add(uint64(work.Addr))
	for life, b := range g.blocks {
		if g.have[life] {
			add(uint64(b.Addr))
		}
	}
	for _, layer := range s.weightsOf(g.first) {
		for _, b := range layer {
			add(uint64(b.Addr))
		}
	}
	return h
}

// drop ends the micro-batches of a group after their W and returns their memory.
func (s *stage) drop(g *group) (blocks []kernels.Block) {
	blocks = s.kept.end(g)
	if b, ok := s.read(g.first, g.last); ok {
		blocks = append(blocks, b)
	}
	return blocks
}

// call prepares a pass of a layer for a micro-batch, or for a group by its first:
// all of a group read the same weights.
func (s *stage) call(layer, mb int, work kernels.Block) *model.Call {
	c := &model.Call{
		Dev: s.dev, Shape: s.shape, First: s.number + mb, LossScale: s.lossScale[mb],
		Weights: s.weightsOf(mb)[layer], Grads: s.gBuf[layer],
		Slots: s.slotsTmp[layer],
	}
	if !work.Empty() {
		c.Work = work.As(kernels.F32)
	}
	clear(c.Slots)
	return c
}
