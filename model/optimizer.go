package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pipetrain/pipetrain/kernels"
)

// Rule is one kind of optimizer. A file of this package registers it; job files,
// plans, runs and checkpoints know it from then on.
type Rule struct {
	Name string // of the kind in a job file
	Doc  string // what it is, with its source
	Keys []Key  // numbers that it is told beside the learning rate and the weight decay

	// Check returns the values that are within their bounds and cannot work all the same; nil: none.
	Check func(Values) []Mistake
	// States names the flat f32 buffers that Step needs beside weights and gradients,
	// zero at the start, in order.
	States func(Values) []string
	// Step updates the weights of one group of parameters.
	Step func(d kernels.Ops, s Step)
}

// Values are the numbers of a rule by the names of its keys.
type Values map[string]float64

// f32 returns a value as devices take it.
func (v Values) f32(key string) float32 { return float32(v[key]) }

// Step is one update of a group of parameters.
type Step struct {
	Values Values
	// Weights, Grads and States are F32. Low is empty, or BF16: the new weights rounded.
	Weights, Grads, Low kernels.Buffer
	States              []kernels.Buffer
	Number              int     // of the update, from 1
	LR, Decay           float32 // Decay is 0 for gains
	GradScale           float32 // multiplies the gradient first (clipping)
}

// rules are sorted by name.
var rules []*Rule

// register adds a rule. A key that rules share has one meaning and one range.
func register(r Rule) {
	for _, other := range rules {
		mustShare(other.Name, r.Name, other.Keys, r.Keys)
	}
	rules = append(rules, &r)
	slices.SortFunc(rules, func(a, b *Rule) int { return strings.Compare(a.Name, b.Name) })
}

// Rules returns the registered rules, sorted by name.
func Rules() []*Rule { return rules }

// FindRule returns the rule of a name, nil when there is none.
func FindRule(name string) *Rule {
	for _, r := range rules {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// Optimizer is a rule with its numbers, checked. The state lives with the caller, in
// flat buffers of a Layout.
type Optimizer struct {
	Kind        string // of a Rule
	Values      Values
	WeightDecay float64 // of matrices; gains have none
}

func (o Optimizer) rule() *Rule {
	r := FindRule(o.Kind)
	if r == nil {
		panic(fmt.Sprintf("model: no optimizer %q", o.Kind))
	}
	return r
}

// States names the flat f32 buffers that Update needs beside weights and
// gradients, zero at the start, in order.
func (o Optimizer) States() []string { return o.rule().States(o.Values) }

// Update applies gradients × scale to the weights. Buffers are flat, laid out by
// l; low is empty, or BF16 and becomes the new weights rounded; step counts from 1; lr is LRSchedule.At(step), scale from ClipScale.
func (o Optimizer) Update(d kernels.Ops, l *Layout, w, g, low kernels.Buffer, states []kernels.Buffer, step int, lr float64, scale float32) {
	r := o.rule()
	for _, run := range l.Groups {
		part := func(b kernels.Buffer) kernels.Buffer {
			if b.Empty() {
				return b
			}
			return b.Slice(run.Offset, run.Len)
		}
		s := Step{Values: o.Values, Weights: part(w), Grads: part(g), Low: part(low), Number: step, LR: float32(lr), GradScale: scale}
		for _, b := range states {
			s.States = append(s.States, part(b))
		}
		if run.Decay {
			s.Decay = float32(o.WeightDecay)
		}
		r.Step(d, s)
	}
}
