package model

import "github.com/pipetrain/pipetrain/kernels"

func init() {
	register(Rule{
		Name: "sgd", Doc: "with momentum",
		Keys: []Key{{Name: "momentum", Doc: "Momentum", Default: 0.9, Max: 1, Below: true}},
		States: func(v Values) []string {
			if v["momentum"] == 0 {
				return nil
			}
			return []string{"momentum_buffer"}
		},
		Step: func(d kernels.Ops, s Step) {
			var b kernels.Buffer
			if len(s.States) > 0 {
				b = s.States[0]
			}
			d.StepSGD(s.Weights, s.Grads, b, s.Low, kernels.SGD{LR: s.LR, Momentum: s.Values.f32("momentum"), WeightDecay: s.Decay, GradScale: s.GradScale})
		},
	})
}
