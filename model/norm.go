package model

import "github.com/pipetrain/pipetrain/kernels"

// norm is a normalisation of rows of dim columns that learns a gain, and maybe a
// bias. It keeps statistics, one f32 a row each.
type norm interface {
	// params declares what it learns; module is its Hugging Face name.
	params(module string) []Param
	// stats names its statistics.
	stats() []string
	// forward writes y [rows, dim] and stats [rows] each. The backward-p2 of the Linear
	// that follows calls it again on what was kept: y costs one element-wise pass to
	// compute and a whole rows × dim matrix to keep from F to W.
	forward(d kernels.Ops, y kernels.Buffer, stats []kernels.Buffer, x kernels.Buffer, w []kernels.Buffer, rows int)
	// backwardInput computes dx = residual + the norm's gradient; the residual is
	// the gradient that bypasses the norm, empty for none.
	backwardInput(d kernels.Device, dx, dy, residual, x kernels.Buffer, stats, w []kernels.Buffer, rows int)
	// backwardWeight adds to the gradients of params, [dim] each.
	backwardWeight(d kernels.Ops, g []kernels.Buffer, dy, x kernels.Buffer, stats []kernels.Buffer, rows int)
}

// newNorm returns the norm of a model of cfg.
func newNorm(cfg Config) norm {
	if cfg.Norm == NormLayer {
		return layerNorm{cfg.Dim, float32(cfg.NormEps)}
	}
	return rmsnorm{cfg.Dim, float32(cfg.NormEps)}
}

// gain and bias declare a norm's parameters.
func gain(module string, dim int) Param {
	return Param{Name: module + ".weight", Rows: 1, Cols: dim, Vector: true, Init: Init{Value: 1}}
}

func bias(module string, dim int) Param {
	return Param{Name: module + ".bias", Rows: 1, Cols: dim, Vector: true}
}

// scratch hands out parts of a pass's work buffer.
type scratch struct{ rest kernels.Buffer }

// take returns n elements of type t, from the next aligned place.
func (s *scratch) take(n int64, t kernels.DType) kernels.Buffer {
	f := floatsOf(n, t)
	b := s.rest.Slice(0, f).As(t).Slice(0, n)
	f = min(align(f), s.rest.Len)
	s.rest = s.rest.Slice(f, s.rest.Len-f)
	return b
}

// floatsOf returns the f32 elements that n elements of type t take.
func floatsOf(n int64, t kernels.DType) int64 { return (n*t.Size() + 3) / 4 }
