package model

import (
	"fmt"

	"github.com/pipetrain/pipetrain/kernels"
)

func init() {
	register(Rule{
		Name: "adamw", Doc: "arXiv 1711.05101",
		Keys: []Key{
			{Name: "beta1", Doc: "Decay of the mean of gradients", Default: 0.9, Max: 1, Below: true},
			{Name: "beta2", Doc: "Decay of the mean of squared gradients", Default: 0.95, Max: 1, Below: true},
			{Name: "eps", Doc: "Added to the denominator", Default: 1e-8, Max: 1, Above: true},
		},
		Check: func(v Values) (wrong []Mistake) {
			if v.f32("eps") == 0 {
				wrong = append(wrong, Mistake{"eps", fmt.Sprintf("%v is 0 in fp32", v["eps"]), "at least 1e-45, usually 1e-8"})
			}
			for _, key := range []string{"beta1", "beta2"} {
				if v.f32(key) == 1 { // the bias correction divides by 1 - beta^step
					wrong = append(wrong, Mistake{key, fmt.Sprintf("%v is 1 in fp32", v[key]), "below 1, e.g. 0.95"})
				}
			}
			return wrong
		},
		States: func(Values) []string { return []string{"exp_avg", "exp_avg_sq"} },
		Step: func(d kernels.Ops, s Step) {
			d.StepAdamW(s.Weights, s.Grads, s.States[0], s.States[1], s.Low, kernels.AdamW{
				LR: s.LR, Beta1: s.Values.f32("beta1"), Beta2: s.Values.f32("beta2"), Eps: s.Values.f32("eps"),
				WeightDecay: s.Decay, Step: s.Number, GradScale: s.GradScale,
			})
		},
	})
}
