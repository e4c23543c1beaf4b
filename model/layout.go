package model

import "github.com/pipetrain/pipetrain/kernels"

// Layout places the parameters of a stage in one flat buffer. Weights,
// gradients and each optimizer state are such buffers, laid out alike: one
// all-reduce and one or two optimizer calls cover them all. The gaps between
// parameters, for alignment, stay zero under every optimizer.
type Layout struct {
	Params  []ParamRef // in global order
	Offsets []int64    // elements, one for each of Params
	Len     int64      // elements of a flat buffer
	Groups  []Group    // runs of equal weight decay, covering the buffer
}

// Group is a run of a flat buffer to which weight decay applies or not.
type Group struct {
	Offset, Len int64
	Decay       bool
}

// NewLayout places params: those with weight decay first, then the others.
func NewLayout(params []ParamRef) *Layout {
	l := &Layout{Params: params, Offsets: make([]int64, len(params))}
	for _, decay := range []bool{true, false} {
		start := l.Len
		for i, p := range params {
			if p.Decay == decay {
				l.Offsets[i] = l.Len
				l.Len += align(p.Len())
			}
		}
		if l.Len > start {
			l.Groups = append(l.Groups, Group{start, l.Len - start, decay})
		}
	}
	return l
}

// View returns parameter i (an index of Params) within a flat buffer.
func (l *Layout) View(flat kernels.Buffer, i int) kernels.Buffer {
	return flat.Slice(l.Offsets[i], l.Params[i].Len())
}

// Views returns the parameters of one layer within a flat buffer, in the order of
// its Params: what a Call needs as Weights or Grads.
func (l *Layout) Views(flat kernels.Buffer, layer int) []kernels.Buffer {
	var out []kernels.Buffer
	for i, p := range l.Params {
		if p.Layer == layer {
			out = append(out, l.View(flat, i))
		}
	}
	return out
}

// SumSquares writes one F64 for each of Params, 0 for a copy that its owner
// counts; see GlobalNorm. The copies' gradients must have been added before.
func (l *Layout) SumSquares(d kernels.Device, out, grads kernels.Buffer) {
	d.Zero(out)
	for i, p := range l.Params {
		if p.Owned() {
			d.SumSquares(out.Slice(int64(i), 1), l.View(grads, i))
		}
	}
}
