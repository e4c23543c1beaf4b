package costs

import (
	"fmt"
	"time"

	"github.com/pipetrain/pipetrain/jobs"
	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/model"
	"github.com/pipetrain/pipetrain/schedule"
)

// Device describes the accelerator and the links of a job that has not run yet.
type Device struct {
	FLOPS        float64 // of the layers' own operations, a second, as reached and not as advertised
	Bandwidth    float64 // of device memory, bytes a second
	LinkBytes    float64 // between two ranks, bytes a second
	LinkLatency  time.Duration
	NodeRanks    int     // ranks of a node; 0: all on one
	InterBytes   float64 // between nodes; 0: as LinkBytes
	InterLatency time.Duration
}

// DefaultDevice is an assumption, not a measurement: an accelerator that reaches 100 TFLOP/s
// and 2 TB/s, with links of 25 GB/s and 10 µs.
func DefaultDevice() Device {
	return Device{FLOPS: 100e12, Bandwidth: 2e12, LinkBytes: 25e9, LinkLatency: 10 * time.Microsecond}
}

// String tells all figures, so that a plan says what it assumed.
func (d Device) String() string {
	s := fmt.Sprintf("operations and bytes of the layers on an assumed device: %.4g TFLOP/s, memory %.4g GB/s, links %.4g GB/s and %v", d.FLOPS/1e12, d.Bandwidth/1e9, d.LinkBytes/1e9, d.LinkLatency)
	if d.NodeRanks > 0 {
		bytes, latency := d.inter()
		s += fmt.Sprintf(" (between nodes of %d ranks: %.4g GB/s and %v)", d.NodeRanks, bytes/1e9, latency)
	}
	return s
}

func (d Device) inter() (bytes float64, latency time.Duration) {
	bytes, latency = d.LinkBytes, d.LinkLatency
	if d.InterBytes > 0 {
		bytes = d.InterBytes
	}
	if d.InterLatency > 0 {
		latency = d.InterLatency
	}
	return bytes, latency
}

// link returns the time of a message between two pipeline ranks.
func (d Device) link(bytes float64, from, to int) float64 {
	rate, latency := d.LinkBytes, d.LinkLatency
	if d.NodeRanks > 0 && from/d.NodeRanks != to/d.NodeRanks {
		rate, latency = d.inter()
	}
	return latency.Seconds() + bytes/rate
}

// deviceCosts are the op times of a model cut into stages on a Device. A layer's
// pass takes the longer of its operations at the device's rate and its bytes at the
// memory's (roofline): the weights once, however many micro-batches it has, and the slots that it reads or writes.
type deviceCosts struct {
	Work
	d       Device
	f, i, w []float64 // of one micro-batch, by stage
	out, in []float64 // bytes sent by SEND_F and SEND_B
	update  []float64
	params  []float64 // bytes of a stage's gradients
}

// Unit implements Source.
func (d Device) Unit() string { return "s" }

// Fits implements Source.
func (d Device) Fits(*jobs.Spec) error { return nil }

// Of implements Source.
func (d Device) Of(w Work) Costs { return d.of(w) }

func (d Device) of(w Work) *deviceCosts {
	c := &deviceCosts{Work: w, d: d}
	for _, r := range w.Cut {
		c.f = append(c.f, c.pass(r, model.PassForward, 1))
		c.i = append(c.i, c.pass(r, model.PassInput, 1))
		c.w = append(c.w, c.pass(r, model.PassWeight, 1))
		c.out = append(c.out, float64(w.Model.Layers[r.End-1].Out().Bytes(w.Shape)))
		c.in = append(c.in, float64(w.Model.Layers[r.First].In().Bytes(w.Shape)))
		bytes := 4 * float64(model.NewLayout(w.Model.ParamsOf(r)).Len)
		c.params = append(c.params, bytes)
		// The weights and each state are read and written, the gradients read and cleared.
		moved := bytes * float64(4+2*w.States)
		if t := w.Model.Config.Type; t != kernels.F32 { // and their rounded copy is written
			moved += bytes / 4 * float64(t.Size())
		}
		c.update = append(c.update, moved/d.Bandwidth)
	}
	return c
}

// elem returns the bytes of an activation, and of a weight as layers read it.
func (c *deviceCosts) elem() float64 { return float64(c.Model.Config.Type.Size()) }

// pass returns the time of n micro-batches in one pass over the layers of r.
func (c *deviceCosts) pass(r model.Range, p model.Pass, n int) float64 {
	total := 0.0
	for _, l := range c.Model.Layers[r.First:r.End] {
		bytes := 0.0
		shape := c.Shape.Times(n)
		for _, s := range l.Slots() {
			if s.Life.Alive(p) {
				bytes += float64(s.Bytes(shape))
			}
		}
		elems := 0.0
		for _, q := range l.Params() {
			elems += float64(q.Len())
		}
		weights := c.elem() * elems
		switch p {
		case model.PassForward:
			bytes += weights + float64(l.Out().Bytes(shape))
		case model.PassInput:
			bytes += weights + float64(l.In().Bytes(shape))
		case model.PassWeight:
			bytes += 2 * 4 * elems // the gradients, f32, are added to
		}
		total += max(float64(l.FLOPs(p, shape))/c.d.FLOPS, bytes/c.d.Bandwidth)
	}
	return total
}

// Compute implements schedule.Costs.
func (c *deviceCosts) Compute(op schedule.Op) float64 {
	switch op.Kind {
	case schedule.Forward:
		return c.f[op.Stage]
	case schedule.BackwardInput:
		return c.i[op.Stage]
	case schedule.BackwardWeight:
		if n := op.Microbatches(); n > 1 {
			return c.pass(c.Cut[op.Stage], model.PassWeight, n)
		}
		return c.w[op.Stage]
	case schedule.Backward:
		return c.i[op.Stage] + c.w[op.Stage]
	case schedule.ReduceGrad:
		return c.reduce(op.Stage)
	case schedule.Update:
		return c.update[op.Stage] + c.reduce(op.Stage)
	}
	return 0
}

// reduce returns the time of a ring all-reduce over the n copies of a stage: 2(n-1)/n of the
// bytes over each link, in 2(n-1) messages. The copies are taken to be on other nodes.
func (c *deviceCosts) reduce(stage int) float64 {
	n := c.Copies
	if n < 2 {
		return 0
	}
	rate, latency := c.d.inter()
	return 2 * float64(n-1) * (c.params[stage]/float64(n)/rate + latency.Seconds())
}

// Transfer implements schedule.Costs.
func (c *deviceCosts) Transfer(send schedule.Op, from, to int) float64 {
	if send.Kind == schedule.SendF {
		return c.d.link(c.out[send.Stage], from, to)
	}
	return c.d.link(c.in[send.Stage], from, to)
}

// StageUpdate implements Costs.
func (c *deviceCosts) StageUpdate(stage int) float64 { return c.update[stage] }
