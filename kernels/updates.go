package kernels

// AdamW holds the hyperparameters of one step of AdamW (arXiv 1711.05101, alg. 2).
type AdamW struct {
	LR, Beta1, Beta2, Eps, WeightDecay float32
	Step                               int     // from 1, for bias correction
	GradScale                          float32 // multiplies the gradient first (clipping)
}

// SGD holds the hyperparameters of one step of SGD with momentum as in
// PyTorch: b = momentum·b + g + decay·w; w -= lr·b.
type SGD struct {
	LR, Momentum, WeightDecay float32
	GradScale                 float32
}

// Updates are the arithmetic of optimizers, one pass over the weights each.
type Updates interface {
	// StepAdamW updates w, m, v from the gradient g, all F32 and of the same length.
	// low is empty, or BF16 of the same length: the new w rounded as by Convert, written
	// in the same pass.
	StepAdamW(w, g, m, v, low Buffer, p AdamW)
	// StepSGD updates w and the momentum buffer b (empty when momentum is 0) from g; low as above.
	StepSGD(w, g, b, low Buffer, p SGD)
}
