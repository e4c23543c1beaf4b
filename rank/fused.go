package rank

import (
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
)

// backward performs the fused B of a micro-batch: I and W layer by layer, so
// that the output gradients of one layer are freed before the next but one begins.
func (s *stage) backward(mb int, dx kernels.Buffer) error {
	dy, hasDY := s.kept.takeGradient(mb) // of layer i
	for i := len(s.layers) - 1; i >= 0; i-- {
		l := s.layers[i]
		target := dx
		var below kernels.Block
		if i > 0 {
			var err error
			if below, err = s.arena.Alloc(l.In().Bytes(s.shape), catP2Inputs); err != nil {
				return err
			}
			target = below.As(l.In().Type)
		}
		if err := s.backwardLayer(i, mb, dy, hasDY, target); err != nil {
			return err
		}
		if hasDY {
			s.arena.Free(dy)
		}
		dy, hasDY = below, i > 0
	}
	s.kept.endInput(mb)
	for _, b := range s.drop(s.kept.group(mb, mb)) {
		s.arena.Free(b)
	}
	return nil
}

func (s *stage) backwardLayer(i, mb int, dy kernels.Block, hasDY bool, target kernels.Buffer) error {
	l := s.layers[i]
	var bytes int64
	for _, slot := range l.Slots() {
		if slot.Life == model.FromInput && slot.Name != model.SlotDY {
			bytes += roundUp(slot.Bytes(s.shape), slotAlign)
		}
	}
	tmp, err := s.arena.Alloc(bytes, catP2Inputs)
	if err != nil {
		return err
	}
	w, err := s.arena.Alloc(4*max(l.Work(model.PassInput, s.dev, s.shape), l.Work(model.PassWeight, s.dev, s.shape)), catScratch)
	if err != nil {
		return err
	}
	c := s.call(i, mb, w)
	var off int64
	for j, slot := range l.Slots() {
		switch {
		case slot.Life != model.FromInput:
			c.Slots[j] = s.kept.slot(i, j, mb)
		case slot.Name == model.SlotDY:
			if hasDY {
				c.Slots[j] = dy.As(slot.Type)
			}
		default:
			n := slot.Bytes(s.shape)
			c.Slots[j] = tmp.Slice(off, n).As(slot.Type)
			off += roundUp(n, slotAlign)
		}
	}
	c.DX = target
	l.BackwardInput(c)
	c.DX = kernels.Buffer{}
	for j, slot := range l.Slots() {
		if slot.Life == model.UntilInput {
			c.Slots[j] = kernels.Buffer{}
		}
	}
	l.BackwardWeight(c)
	s.arena.Free(w)
	s.arena.Free(tmp)
	return nil
}
