package model

import (
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
)

// Model is a chain of layers: each one's output is the next one's input, the
// last computes the loss.
type Model struct {
	Config Config // with defaults filled in
	Layers []Layer
	params []ParamRef
}

// ParamRef is a parameter with its place in the whole model.
type ParamRef struct {
	Param
	Layer, Slot int // Layers[Layer].Params()[Slot]
	// Index is the position among all parameters of the model, by layer: the key
	// of initialisation and the order of the gradient norm's sum.
	Index int
	// Owner is the Index of the first copy of a tie, else Index itself. All copies
	// start from the Owner's numbers; the Owner alone is saved, counted and
	// enters the gradient norm.
	Owner int
}

// Owned says whether p is the copy that counts.
func (p ParamRef) Owned() bool { return p.Index == p.Owner }

// New returns the model of cfg, zero values replaced by defaults, or every
// mistake in it.
func New(cfg Config) (*Model, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	return Chain(cfg, FindFamily(cfg.Kind).Layers(cfg))
}

// Chain returns the model of a list of layers, or where two of them do not fit
// together. cfg tells the type and the tokens of a sample.
func Chain(cfg Config, layers []Layer) (*Model, error) {
	m := &Model{Config: cfg, Layers: layers}
	for i := range layers {
		if err := m.connects(i); err != nil {
			return nil, fmt.Errorf("model: layer %d, %s: %w", i, layers[i].Name(), err)
		}
	}
	owner := map[string]int{}
	for i, l := range m.Layers {
		for j, p := range l.Params() {
			ref := ParamRef{Param: p, Layer: i, Slot: j, Index: len(m.params), Owner: len(m.params)}
			if p.Tie != "" {
				if first, seen := owner[p.Tie]; seen {
					ref.Owner = first
				} else {
					owner[p.Tie] = ref.Index
				}
			}
			m.params = append(m.params, ref)
		}
	}
	return m, nil
}

// connects says why layer i cannot stand where it stands.
func (m *Model) connects(i int) error {
	l, last := m.Layers[i], i == len(m.Layers)-1
	x, dy := SlotIndex(l, SlotX), SlotIndex(l, SlotDY)
	switch {
	case x < 0 || l.Slots()[x].Matrix != l.In() || l.Slots()[x].Life == FromInput:
		return fmt.Errorf("its slot %q must be its input, %v, and live until I or W", SlotX, l.In())
	case (l.Slots()[x].Field != "") != (i == 0):
		return fmt.Errorf("the first layer's %q comes from the data, any other's from the layer before", SlotX)
	case last && (dy >= 0 || l.Out().Type != kernels.F32):
		return fmt.Errorf("the last layer gives losses, F32, and gets no gradient")
	case !last && (dy < 0 || l.Slots()[dy].Matrix != l.Out() || l.Slots()[dy].Life != FromInput):
		return fmt.Errorf("its slot %q must be its output's gradient, %v, and live from I", SlotDY, l.Out())
	case !last && l.Out() != m.Layers[i+1].In():
		return fmt.Errorf("it gives %v, the next takes %v", l.Out(), m.Layers[i+1].In())
	}
	return nil
}

// HFConfig returns the contents of config.json beside the saved parameters (see Family.HF).
func (m *Model) HFConfig() map[string]any {
	if f := FindFamily(m.Config.Kind); f != nil {
		return f.HF(m.Config)
	}
	return nil
}

// Shape returns the shape of so many samples.
func (m *Model) Shape(samples int) Shape { return Shape{Batch: samples, Seq: m.Config.Seq} }

// Params returns every parameter in global order, copies of a tie included.
func (m *Model) Params() []ParamRef { return m.params }

// ParamsOf returns those of the layers of r, in global order.
func (m *Model) ParamsOf(r Range) []ParamRef {
	var out []ParamRef
	for _, p := range m.params {
		if p.Layer >= r.First && p.Layer < r.End {
			out = append(out, p)
		}
	}
	return out
}

// ParamCount returns the trained numbers, a tied matrix counted once.
func (m *Model) ParamCount() int64 {
	var n int64
	for _, p := range m.params {
		if p.Owned() {
			n += p.Len()
		}
	}
	return n
}

// FLOPs returns the operations of a pass through all layers.
func (m *Model) FLOPs(p Pass, s Shape) int64 {
	return m.FLOPsOf(Range{0, len(m.Layers)}, p, s)
}

// FLOPsOf returns the operations of a pass through the layers of r.
func (m *Model) FLOPsOf(r Range, p Pass, s Shape) int64 {
	var n int64
	for _, l := range m.Layers[r.First:r.End] {
		n += l.FLOPs(p, s)
	}
	return n
}
