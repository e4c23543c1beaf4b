package model

import (
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
)

func TestRows(t *testing.T) {
	one := Shape{Batch: 3, Seq: 5}
	for _, c := range []struct {
		rows      Rows
		one, four int
	}{{Token, 15, 60}, {Sample(7), 21, 84}, {Sample(1), 3, 12}, {Micro(2), 2, 8}} {
		if a, b := c.rows.In(one), c.rows.In(one.Times(4)); a != c.one || b != c.four {
			t.Errorf("%v: %d rows and %d of four joined, want %d and %d", c.rows, a, b, c.one, c.four)
		}
	}
	if got := one.Times(4).Times(2); got != (Shape{24, 5, 8}) {
		t.Errorf("%+v", got)
	}
	m := Matrix{Sample(7), 3, kernels.BF16}
	if m.Len(one) != 63 || m.Bytes(one) != 126 || m.String() != "7×3 bf16 a sample" {
		t.Errorf("%s: %d elements, %d bytes", m, m.Len(one), m.Bytes(one))
	}
}

// altered is a layer with other slots or another output.
type altered struct {
	Layer
	slots []Slot
	out   Matrix
}

func (l altered) Slots() []Slot { return l.slots }
func (l altered) Out() Matrix   { return l.out }

func TestChainRefusesWhatDoesNotFit(t *testing.T) {
	m, err := New(small)
	if err != nil {
		t.Fatal(err)
	}
	end := len(m.Layers) - 1
	for _, c := range []struct {
		want  string
		layer int
		slot  string
		alter func(s *Slot, out *Matrix)
	}{
		{`layer 3, model.layers.2: it gives 1×65 f32 a token, the next takes 1×64 f32 a token`, 3, SlotDY, func(s *Slot, out *Matrix) { s.Width++; out.Width++ }},
		{`layer 3, model.layers.2: its slot "dy" must be`, 3, SlotDY, func(s *Slot, _ *Matrix) { s.Rows = Sample(32) }},
		{`its slot "dy" must be`, 0, SlotDY, func(s *Slot, _ *Matrix) { s.Life = UntilWeight }},
		{`its slot "x" must be`, 2, SlotX, func(s *Slot, _ *Matrix) { s.Life = FromInput }},
		{`its slot "x" must be`, 2, SlotX, func(s *Slot, _ *Matrix) { s.Name = "input" }},
		{`the first layer's "x" comes from the data`, 0, SlotX, func(s *Slot, _ *Matrix) { s.Field = "" }},
		{`the first layer's "x" comes from the data`, 1, SlotX, func(s *Slot, _ *Matrix) { s.Field = FieldIDs }},
		{`the last layer gives losses`, end, SlotX, func(_ *Slot, out *Matrix) { out.Type = kernels.BF16 }},
	} {
		layers := append([]Layer(nil), m.Layers...)
		a := altered{layers[c.layer], append([]Slot(nil), layers[c.layer].Slots()...), layers[c.layer].Out()}
		c.alter(&a.slots[SlotIndex(layers[c.layer], c.slot)], &a.out)
		layers[c.layer] = a
		if _, err := Chain(m.Config, layers); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}
