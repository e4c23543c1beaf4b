package model

import "github.com/pipetrain/pipetrain/kernels"

// sequence is a part made of parts, each of which takes what the one before gives. What
// lives where is chosen by hand: each link says where the output of its part
// lies, and where the gradient of that output does.
type sequence []link

// link is a part of a sequence. y and dy are nil for the last, whose output is the
// sequence's own.
//
// y in scratch lives until the next part has read it; backward-p2 computes it again,
// by the part's again. dy in scratch lives until the part has made of it the gradient
// of its input. dy may be y: the gradient then takes the memory of the value, which the
// next part must be the last to read.
type link struct {
	part
	y, dy *slot
}

// repeatable is a part whose output backward-p2 computes again from x: that is one element-wise
// pass, and to keep the output would cost a whole matrix from F to W.
type repeatable interface {
	// again writes y once more.
	again(c *Call, m matrices)
	againWork(s Shape) int64
}

// repeated is the pass of a repeatable part in backward-p2 that makes y.
type repeated struct {
	weightless
	repeatable
}

func (r repeated) forward(*Call, matrices)                   {}
func (r repeated) backwardInput(*Call, matrices)             {}
func (r repeated) backwardWeight(c *Call, m matrices)        { r.again(c, m) }
func (r repeated) work(_ Pass, _ kernels.Ops, s Shape) int64 { return r.againWork(s) }

func (q sequence) forward(c *Call, m matrices) {
	q.walk(PassForward, c, c.Shape, m, func(k part, m matrices, free space) {
		m.work = free.rest()
		k.forward(c, m)
	})
}

func (q sequence) backwardInput(c *Call, m matrices) {
	q.walk(PassInput, c, c.Shape, m, func(k part, m matrices, free space) {
		m.work = free.rest()
		k.backwardInput(c, m)
	})
}

func (q sequence) backwardWeight(c *Call, m matrices) {
	q.walk(PassWeight, c, c.Shape, m, func(k part, m matrices, free space) {
		m.work = free.rest()
		k.backwardWeight(c, m)
	})
}

// work walks as a pass does, without a call.
func (q sequence) work(p Pass, d kernels.Ops, s Shape) (most int64) {
	q.walk(p, nil, s, matrices{}, func(k part, _ matrices, free space) {
		most = max(most, free.with(k.work(p, d, s)))
	})
	return most
}

func (q sequence) flops(p Pass, s Shape) (n int64) {
	for _, l := range q {
		n += l.part.flops(p, s)
	}
	return n
}

// walk calls f for each part in the order of a pass, with what the part works on and
// the scratch that is left. m are the matrices of the sequence; c may be nil.
func (q sequence) walk(p Pass, c *Call, s Shape, m matrices, f func(k part, m matrices, free space)) {
	last := len(q) - 1
	// value returns the input of part i, where it is kept.
	value := func(i int) kernels.Buffer {
		if i == 0 {
			return m.x
		}
		return q[i-1].y.of(c)
	}
	gradient := func(i int) kernels.Buffer { // of the output of part i
		if i == last {
			return m.dy
		}
		return q[i].dy.of(c)
	}
	free := space{all: m.work}
	switch p {
	case PassForward:
		in := matrices{x: m.x}
		for i, l := range q {
			if i == last {
				in.y, in.add = m.y, m.add
			} else {
				in.y = free.place(l.y, c, s)
			}
			f(l.part, in, free)
			in.x = in.y
			if i < last && l.y.at >= 0 {
				free = space{all: m.work} // what was in scratch has been read
			}
		}
	case PassInput:
		in := matrices{dy: m.dy}
		for i := last; i >= 0; i-- {
			in.x, in.y = value(i), m.y
			if i < last {
				in.y = q[i].y.of(c)
			}
			kept := true
			if i == 0 {
				in.dx, in.add = m.dx, m.add
			} else {
				in.dx, kept = free.place(q[i-1].dy, c, s), q[i-1].dy.at >= 0
			}
			f(q[i].part, in, free)
			in.dy = in.dx
			if kept {
				free = space{all: m.work}
			}
		}
	case PassWeight:
		for i := last; i >= 0; i-- {
			free = space{all: m.work}
			in := matrices{x: value(i), dy: gradient(i)}
			if i > 0 && q[i-1].y.at < 0 {
				if r, ok := q[i-1].part.(repeatable); ok {
					in.x = free.place(q[i-1].y, c, s)
					f(repeated{repeatable: r}, matrices{x: value(i - 1), y: in.x}, free)
				}
			}
			f(q[i].part, in, free)
		}
	}
}

// residual is y = x + f(x), f a sequence: its last part adds x, in backward-p1 its first
// part adds dy. So the last must be a Linear, the first a Linear or a norm.
type residual struct{ sequence }

func (r residual) forward(c *Call, m matrices) {
	m.add = m.x
	r.sequence.forward(c, m)
}

func (r residual) backwardInput(c *Call, m matrices) {
	m.add = m.dy
	r.sequence.backwardInput(c, m)
}

// space hands out parts of a pass's scratch, or only counts where there is none.
type space struct {
	all kernels.Buffer
	end int64 // f32 elements that are taken
}

// place returns where the matrix of a handle is: in its slot, or in scratch that it takes.
func (r *space) place(s *slot, c *Call, sh Shape) kernels.Buffer {
	if s.at >= 0 {
		return s.of(c)
	}
	return r.take(s.Len(sh), s.Type)
}

// take returns n elements of type t, from the next aligned place.
func (r *space) take(n int64, t kernels.DType) kernels.Buffer {
	start := align(r.end)
	r.end = start + (n*t.Size()+3)/4
	if r.all.Empty() {
		return kernels.Buffer{}
	}
	return r.all.Slice(start, r.end-start).As(t).Slice(0, n)
}

// rest returns what is left.
func (r *space) rest() kernels.Buffer {
	start := min(align(r.end), r.all.Len)
	return r.all.Slice(start, r.all.Len-start)
}

// with returns the f32 elements of what is taken and of n more.
func (r *space) with(n int64) int64 {
	if n == 0 {
		return r.end
	}
	return align(r.end) + n
}
