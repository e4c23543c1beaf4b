package kerneltest_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/pipetrain/pipetrain/kernels"
	"github.com/pipetrain/pipetrain/kernels/kerneltest"
)

// The devices below each have one fault in what bf16 or the second family of layers asks for.

type truncatesGemm struct{ kernels.Device }

func (d truncatesGemm) Gemm(ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	if c.Type != kernels.BF16 || beta != 0 {
		d.Device.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	t := temporary(d, c.Len)
	d.Device.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, 0, t, ldc)
	for i := range m {
		for j := range n {
			at := int64(i*ldc + j)
			copy(d.Host(c.Slice(at, 1)), d.Host(t.Slice(at, 1))[2:])
		}
	}
	d.Free(t.As(kernels.U8))
}

type roundsGradients struct{ kernels.Device }

func (d roundsGradients) Gemm(ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	d.Device.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	if a.Type == kernels.BF16 && c.Type == kernels.F32 && m > 0 && n > 0 {
		for i := range int64(m) {
			clear(d.Host(c.Slice(i*int64(ldc), int64(n)).Slice(int64(n)-1, 1))[:2])
		}
	}
}

// sumsInBF16 rounds what it has between two halves of k.
type sumsInBF16 struct{ kernels.Device }

func (d sumsInBF16) Gemm(ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	if h := k / 2; c.Type == kernels.BF16 && !ta && tb && h > 0 {
		d.Device.Gemm(ta, tb, m, n, h, alpha, a, lda, b, ldb, beta, c, ldc)
		a, b, k, beta = a.Slice(int64(h), a.Len-int64(h)), b.Slice(int64(h), b.Len-int64(h)), k-h, 1
	}
	d.Device.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// forgetsOddNumbers leaves out the last number of an odd inner dimension, as where bf16 is taken by pairs.
type forgetsOddNumbers struct{ kernels.Device }

func (d forgetsOddNumbers) Gemm(ta, tb bool, m, n, k int, alpha float32, a kernels.Buffer, lda int, b kernels.Buffer, ldb int, beta float32, c kernels.Buffer, ldc int) {
	if a.Type == kernels.BF16 && k > 1 {
		k = k / 2 * 2
	}
	d.Device.Gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

type truncatesAdd struct{ kernels.Device }

func (d truncatesAdd) Add(dst, a, b kernels.Buffer) {
	if dst.Type != kernels.BF16 {
		d.Device.Add(dst, a, b)
		return
	}
	x, y := temporary(d, dst.Len), temporary(d, dst.Len)
	d.Convert(x, a)
	d.Convert(y, b)
	d.Device.Add(x, x, y)
	for i := range dst.Len {
		copy(d.Host(dst.Slice(i, 1)), d.Host(x.Slice(i, 1))[2:])
	}
	d.Free(x.As(kernels.U8))
	d.Free(y.As(kernels.U8))
}

type convertsTiesUp struct{ kernels.Device }

func (d convertsTiesUp) Convert(dst, src kernels.Buffer) {
	d.Device.Convert(dst, src)
	for i := range src.Len {
		if dst.Type == kernels.BF16 {
			if b := bits32(d, src, i); b&0xffff == 0x8000 && b>>16&0x7f80 < 0x7f80 {
				binary.NativeEndian.PutUint16(d.Host(dst.Slice(i, 1)), uint16(b>>16)+1)
			}
		}
	}
}

type convertsNaNToInf struct{ kernels.Device }

func (d convertsNaNToInf) Convert(dst, src kernels.Buffer) {
	d.Device.Convert(dst, src)
	for i := range src.Len {
		if b := bits32(d, src, i); dst.Type == kernels.BF16 && b == 0x7f800001 {
			binary.NativeEndian.PutUint16(d.Host(dst.Slice(i, 1)), 0x7f80)
		}
	}
}

type layerNormOneVariance struct{ kernels.Device } // mean(x²) − mean(x)² in f32

func (d layerNormOneVariance) LayerNormForward(y, mean, rstd, x, gamma, beta kernels.Buffer, rows, dim int, eps float32) {
	d.Device.LayerNormForward(y, mean, rstd, x, gamma, beta, rows, dim, eps)
	if x.Type != kernels.F32 {
		return
	}
	for i := range rows {
		var s, q float32
		for j := range dim {
			v := host32(d, x.Slice(int64(i*dim+j), 1))
			s += v
			q += v * v
		}
		m := s / float32(dim)
		variance := max(0, q/float32(dim)-m*m)
		binary.NativeEndian.PutUint32(d.Host(rstd.Slice(int64(i), 1)), math.Float32bits(1/float32(math.Sqrt(float64(variance+eps)))))
	}
}

type layerNormForgetsMean struct{ kernels.Device }

func (d layerNormForgetsMean) LayerNormBackwardInput(dx, dy, x, _, rstd, gamma kernels.Buffer, rows, dim int, acc bool) {
	d.RMSNormBackwardInput(dx, dy, x, rstd, gamma, rows, dim, acc)
}

type layerNormDropsAccumulate struct{ kernels.Device }

func (d layerNormDropsAccumulate) LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma kernels.Buffer, rows, dim int, _ bool) {
	d.Device.LayerNormBackwardInput(dx, dy, x, mean, rstd, gamma, rows, dim, false)
}

type layerNormOverwritesBeta struct{ kernels.Device }

func (d layerNormOverwritesBeta) LayerNormBackwardWeight(dg, db, dy, x, mean, rstd kernels.Buffer, rows, dim int) {
	d.Zero(db)
	d.Device.LayerNormBackwardWeight(dg, db, dy, x, mean, rstd, rows, dim)
}

type layerNormLosesARow struct{ kernels.Device }

func (d layerNormLosesARow) LayerNormBackwardWeight(dg, db, dy, x, mean, rstd kernels.Buffer, rows, dim int) {
	d.Device.LayerNormBackwardWeight(dg, db, dy, x, mean, rstd, rows-1, dim)
}

type geluByErf struct{ kernels.Device }

func (d geluByErf) GELUForward(y, x kernels.Buffer) {
	d.Device.GELUForward(y, x)
	for i := range x.Len {
		if x.Type == kernels.F32 {
			v := float64(host32(d, x.Slice(i, 1)))
			binary.NativeEndian.PutUint32(d.Host(y.Slice(i, 1)), math.Float32bits(float32(v/2*math.Erfc(-v/math.Sqrt2))))
		}
	}
}

type geluFailsInPlace struct{ kernels.Device }

func (d geluFailsInPlace) GELUBackward(dx, dy, x kernels.Buffer) {
	d.Copy(dx, dy)
	d.Device.GELUBackward(dx, dx, x)
}

type geluForgetsCube struct{ kernels.Device } // in the derivative, as sigmoid's own would be

func (d geluForgetsCube) GELUBackward(dx, dy, x kernels.Buffer) {
	d.Device.GELUBackward(dx, dy, x)
	for i := range x.Len {
		if x.Type == kernels.F32 && dx != x {
			v, g := float64(host32(d, x.Slice(i, 1))), float64(host32(d, dy.Slice(i, 1)))
			s := 1 / (1 + math.Exp(-1.702*v))
			binary.NativeEndian.PutUint32(d.Host(dx.Slice(i, 1)), math.Float32bits(float32(g*s*(1+v*(1-s)*1.702))))
		}
	}
}

type roundsOldWeights struct{ kernels.Device }

func (d roundsOldWeights) StepAdamW(w, g, m, v, low kernels.Buffer, p kernels.AdamW) {
	if !low.Empty() {
		d.Convert(low, w)
	}
	d.Device.StepAdamW(w, g, m, v, kernels.Buffer{}, p)
}

type neverRounds struct{ kernels.Device }

func (d neverRounds) StepSGD(w, g, b, _ kernels.Buffer, p kernels.SGD) {
	d.Device.StepSGD(w, g, b, kernels.Buffer{}, p)
}

type attentionForgetsHalf struct{ kernels.Device } // of a bf16 row's head, rounded away to 4 bits

func (d attentionForgetsHalf) AttentionForward(o, lse, qkv, work kernels.Buffer, s kernels.Attention) {
	d.Device.AttentionForward(o, lse, qkv, work, s)
	if o.Type == kernels.BF16 {
		for i := range o.Len {
			d.Host(o.Slice(i, 1))[0] &= 0xf8
		}
	}
}

func temporary(d kernels.Device, n int64) kernels.Buffer {
	b, err := d.Alloc(4 * n)
	if err != nil {
		panic(err)
	}
	return b.As(kernels.F32)
}

func bits32(d kernels.Device, b kernels.Buffer, i int64) uint32 {
	if b.Type != kernels.F32 {
		return 0
	}
	return binary.NativeEndian.Uint32(d.Host(b.Slice(i, 1)))
}

// TestSuiteCatchesFaultsOfTypes breaks one thing at a time: the suite must see each.
func TestSuiteCatchesFaultsOfTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it is about numbers")
	}
	for _, f := range []struct {
		name, cases string
		of          func(kernels.Device) kernels.Device
	}{
		{"Gemm truncates C", "Gemm", func(d kernels.Device) kernels.Device { return truncatesGemm{d} }},
		{"Gemm rounds gradients", "Gemm", func(d kernels.Device) kernels.Device { return roundsGradients{d} }},
		{"Gemm sums in bf16", "Gemm", func(d kernels.Device) kernels.Device { return sumsInBF16{d} }},
		{"Gemm forgets the number without a pair", "Gemm", func(d kernels.Device) kernels.Device { return forgetsOddNumbers{d} }},
		{"Add truncates", "Add", func(d kernels.Device) kernels.Device { return truncatesAdd{d} }},
		{"Convert rounds ties up", "Convert", func(d kernels.Device) kernels.Device { return convertsTiesUp{d} }},
		{"Convert makes a NaN infinite", "Convert", func(d kernels.Device) kernels.Device { return convertsNaNToInf{d} }},
		{"LayerNorm takes the variance in one pass", "LayerNorm", func(d kernels.Device) kernels.Device { return layerNormOneVariance{d} }},
		{"LayerNormBackwardInput forgets the mean", "LayerNorm", func(d kernels.Device) kernels.Device { return layerNormForgetsMean{d} }},
		{"LayerNormBackwardInput drops accumulate", "LayerNorm", func(d kernels.Device) kernels.Device { return layerNormDropsAccumulate{d} }},
		{"LayerNormBackwardWeight overwrites dbeta", "LayerNorm", func(d kernels.Device) kernels.Device { return layerNormOverwritesBeta{d} }},
		{"LayerNormBackwardWeight loses the last row", "LayerNorm", func(d kernels.Device) kernels.Device { return layerNormLosesARow{d} }},
		{"GELU by erf", "GELU", func(d kernels.Device) kernels.Device { return geluByErf{d} }},
		{"GELUBackward fails in place", "GELU", func(d kernels.Device) kernels.Device { return geluFailsInPlace{d} }},
		{"GELUBackward of another approximation", "GELU", func(d kernels.Device) kernels.Device { return geluForgetsCube{d} }},
		{"AdamW rounds the old weights", "StepAdamW", func(d kernels.Device) kernels.Device { return roundsOldWeights{d} }},
		{"SGD never rounds", "StepSGD", func(d kernels.Device) kernels.Device { return neverRounds{d} }},
		{"Attention loses bits", "Attention", func(d kernels.Device) kernels.Device { return attentionForgetsHalf{d} }},
	} {
		t.Run(f.name, func(t *testing.T) {
			maker := func(threads int) (kernels.Device, error) {
				d, err := sound(threads)
				return f.of(d), err
			}
			for _, c := range kerneltest.Cases() {
				if strings.HasPrefix(c.Name, f.cases) {
					if err := c.Check(maker); err != nil {
						t.Logf("caught: %.300v", err)
						return
					}
				}
			}
			t.Errorf("the cases %q saw nothing", f.cases)
		})
	}
}
