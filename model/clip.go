package model

import "math"

// GlobalNorm returns the square root of the sum of sums of squares, one for each
// owned parameter of the whole model, in global order. Added in this order,
// however the model is cut, the norm has the same bits.
func GlobalNorm(sumSquares []float64) float64 {
	var sum float64
	for _, s := range sumSquares {
		sum += s
	}
	return math.Sqrt(sum)
}

// ClipScale returns the factor that brings a gradient of this norm down to clip,
// as torch.nn.utils.clip_grad_norm_ computes it; 1 when clip is 0. A norm that
// is not finite gives NaN: the update would be meaningless, so let it show.
func ClipScale(norm, clip float64) float32 {
	switch {
	case math.IsNaN(norm) || math.IsInf(norm, 0):
		return float32(math.NaN())
	case clip == 0:
		return 1
	}
	return float32(min(1, clip/(norm+1e-6)))
}
