package model

import (
	"fmt"
	"math"

	"github.com/pipetrain/pipetrain/kernels"
)

// Optimizer holds what every update shares. The state lives with the caller, in
// flat buffers of a Layout.
type Optimizer struct {
	Kind              string // "adamw" (arXiv 1711.05101) or "sgd" with momentum
	Beta1, Beta2, Eps float64
	Momentum          float64
	WeightDecay       float64 // of matrices; gains have none
}

// Check returns the first mistake of o.
func (o Optimizer) Check() error {
	unit := func(name string, v float64) error {
		if v >= 0 && v < 1 {
			return nil
		}
		return fmt.Errorf("model: optimizer %s: %s is %v; it must be 0 or more and below 1", o.Kind, name, v)
	}
	if !(o.WeightDecay >= 0) || math.IsInf(o.WeightDecay, 0) {
		return fmt.Errorf("model: optimizer %s: weight_decay is %v; it must be a finite number, 0 or more", o.Kind, o.WeightDecay)
	}
	switch o.Kind {
	case "adamw":
		if !(o.Eps > 0) || o.Eps >= 1 {
			return fmt.Errorf("model: optimizer adamw: eps is %v; it must lie above 0 and below 1", o.Eps)
		}
		if err := unit("beta1", o.Beta1); err != nil {
			return err
		}
		return unit("beta2", o.Beta2)
	case "sgd":
		return unit("momentum", o.Momentum)
	}
	return fmt.Errorf("model: optimizer %q is unknown; known: \"adamw\", \"sgd\"", o.Kind)
}

// States names the flat f32 buffers that Update needs beside weights and
// gradients, zero at the start, in order.
func (o Optimizer) States() []string {
	switch {
	case o.Kind == "adamw":
		return []string{"exp_avg", "exp_avg_sq"}
	case o.Momentum != 0:
		return []string{"momentum_buffer"}
	}
	return nil
}

// Update applies gradients × scale to the weights. Buffers are flat, laid out by
// l; low is empty, or BF16 and becomes the new weights rounded; step counts from 1; lr is LRSchedule.At(step), scale from ClipScale.
func (o Optimizer) Update(d kernels.Ops, l *Layout, w, g, low kernels.Buffer, states []kernels.Buffer, step int, lr float64, scale float32) {
	for _, run := range l.Groups {
		part := func(b kernels.Buffer) kernels.Buffer { return b.Slice(run.Offset, run.Len) }
		var rounded kernels.Buffer
		if !low.Empty() {
			rounded = part(low)
		}
		decay := float32(0)
		if run.Decay {
			decay = float32(o.WeightDecay)
		}
		if o.Kind == "adamw" {
			d.StepAdamW(part(w), part(g), part(states[0]), part(states[1]), rounded, kernels.AdamW{
				LR: float32(lr), Beta1: float32(o.Beta1), Beta2: float32(o.Beta2), Eps: float32(o.Eps),
				WeightDecay: decay, Step: step, GradScale: scale,
			})
			continue
		}
		var b kernels.Buffer
		if o.Momentum != 0 {
			b = part(states[0])
		}
		d.StepSGD(part(w), part(g), b, rounded, kernels.SGD{LR: float32(lr), Momentum: float32(o.Momentum), WeightDecay: decay, GradScale: scale})
	}
}
