package cpu

import "math"

// goKernels is the reference of every assembly kernel, and what other
// processors run.
var goKernels = vecKernels{
	name:             "go",
	add:              addGo,
	scale:            scaleGo,
	mulAcc:           mulAccGo,
	scaleMul:         scaleMulGo,
	dot:              dotGo,
	dot3:             dot3Go,
	max:              maxGo,
	sum:              sumGo,
	sumSquares:       sumSquaresGo,
	sumExp:           sumExpGo,
	expSum:           expSumGo,
	expScale:         expScaleGo,
	normGrad:         normGradGo,
	normGradAdd:      normGradAddGo,
	squaresAbout:     squaresAboutGo,
	dotAbout:         dotAboutGo,
	normalise:        normaliseGo,
	mulAbout:         mulAboutGo,
	layerNormGrad:    layerNormGradGo,
	layerNormGradAdd: layerNormGradAddGo,
	gelu:             geluGo,
	geluGrad:         geluGradGo,
	widen:            widenGo,
	narrow:           narrowGo,
	rotate:           rotateGo,
	rotateBack:       rotateBackGo,
	swiglu:           swigluGo,
	swigluGrad:       swigluGradGo,
	softmaxGrad:      softmaxGradGo,
	adamw:            adamwGo,
	sgd:              sgdGo,
	sgdPlain:         sgdPlainGo,
	gemm:             goGemm,
}

func addGo(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func scaleGo(dst []float32, s float32) {
	for i := range dst {
		dst[i] *= s
	}
}

func mulAccGo(dst, a, b []float32, s float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] += a[i] * b[i] * s
	}
}

func scaleMulGo(dst, a, b []float32, s float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * s * b[i]
	}
}

// The sums run in four lanes, which hide the latency of the addition.

func dotGo(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i := range a {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

func dot3Go(a, b, c []float32) float32 {
	b, c = b[:len(a)], c[:len(a)]
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 && len(c) >= 4 {
		s0 += a[0] * b[0] * c[0]
		s1 += a[1] * b[1] * c[1]
		s2 += a[2] * b[2] * c[2]
		s3 += a[3] * b[3] * c[3]
		a, b, c = a[4:], b[4:], c[4:]
	}
	for i := range a {
		s0 += a[i] * b[i] * c[i]
	}
	return (s0 + s1) + (s2 + s3)
}

func maxGo(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

func sumGo(x []float32) float64 {
	var s0, s1, s2, s3 float64
	for len(x) >= 4 {
		s0 += float64(x[0])
		s1 += float64(x[1])
		s2 += float64(x[2])
		s3 += float64(x[3])
		x = x[4:]
	}
	for _, v := range x {
		s0 += float64(v)
	}
	return (s0 + s1) + (s2 + s3)
}

func sumSquaresGo(x []float32) float64 {
	var s0, s1, s2, s3 float64
	for len(x) >= 4 {
		s0 += float64(x[0]) * float64(x[0])
		s1 += float64(x[1]) * float64(x[1])
		s2 += float64(x[2]) * float64(x[2])
		s3 += float64(x[3]) * float64(x[3])
		x = x[4:]
	}
	for _, v := range x {
		s0 += float64(v) * float64(v)
	}
	return (s0 + s1) + (s2 + s3)
}

func sumExpGo(x []float32, bias float32) float32 {
	var s float32
	for _, v := range x {
		s += exp32(v - bias)
	}
	return s
}

func expSumGo(dst []float32, scale, bias float32) float32 {
	var s float32
	for i, v := range dst {
		e := exp32(v*scale - bias)
		dst[i] = e
		s += e
	}
	return s
}

func expScaleGo(dst, x []float32, bias, scale float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = exp32(x[i]-bias) * scale
	}
}

func normGradGo(dx, dy, x, gamma []float32, r, c float32) {
	dy, x, gamma = dy[:len(dx)], x[:len(dx)], gamma[:len(dx)]
	for i := range dx {
		dx[i] = gamma[i]*dy[i]*r + x[i]*c
	}
}

func normGradAddGo(dx, dy, x, gamma []float32, r, c float32) {
	dy, x, gamma = dy[:len(dx)], x[:len(dx)], gamma[:len(dx)]
	for i := range dx {
		dx[i] += gamma[i]*dy[i]*r + x[i]*c
	}
}

func rotateGo(a, b, cos, sin []float32) {
	b, cos, sin = b[:len(a)], cos[:len(a)], sin[:len(a)]
	for i := range a {
		x, y := a[i], b[i]
		a[i], b[i] = x*cos[i]-y*sin[i], y*cos[i]+x*sin[i]
	}
}

func rotateBackGo(a, b, cos, sin []float32) {
	b, cos, sin = b[:len(a)], cos[:len(a)], sin[:len(a)]
	for i := range a {
		x, y := a[i], b[i]
		a[i], b[i] = x*cos[i]+y*sin[i], y*cos[i]-x*sin[i]
	}
}

func swigluGo(y, g, u []float32) {
	g, u = g[:len(y)], u[:len(y)]
	for i := range y {
		y[i] = g[i] / (1 + exp32(-g[i])) * u[i]
	}
}

func swigluGradGo(dg, du, dy, g, u []float32) {
	du, dy, g, u = du[:len(dg)], dy[:len(dg)], g[:len(dg)], u[:len(dg)]
	for i := range dg {
		gi, ui, d := g[i], u[i], dy[i]
		s := 1 / (1 + exp32(-gi))
		du[i] = d * gi * s
		dg[i] = d * ui * s * (1 + gi*(1-s))
	}
}

func softmaxGradGo(s, dp []float32, scale, lse, delta float32) {
	dp = dp[:len(s)]
	for i := range s {
		p := exp32(s[i]*scale - lse)
		s[i] = p
		dp[i] = p * (dp[i] - delta) * scale
	}
}

func adamwGo(w, g, m, v []float32, p *adamParams) {
	g, m, v = g[:len(w)], m[:len(w)], v[:len(w)]
	for i := range w {
		gi := g[i] * p.gradScale
		mi := p.beta1*m[i] + p.oneBeta1*gi
		vi := p.beta2*v[i] + p.oneBeta2*gi*gi
		m[i], v[i] = mi, vi
		denom := float32(math.Sqrt(float64(vi)))*p.invSqrtBias2 + p.eps
		w[i] = w[i]*p.keep - p.step*mi/denom
	}
}

func sgdGo(w, g, b []float32, p *sgdParams) {
	g, b = g[:len(w)], b[:len(w)]
	for i := range w {
		bi := p.momentum*b[i] + (g[i]*p.gradScale + p.decay*w[i])
		b[i] = bi
		w[i] += p.minusLR * bi
	}
}

func sgdPlainGo(w, g []float32, p *sgdParams) {
	g = g[:len(w)]
	for i := range w {
		w[i] += p.minusLR * (g[i]*p.gradScale + p.decay*w[i])
	}
}

// Range reduction exp(x) = 2^n · exp(r), |r| ≤ ln2/2: ln2 in two parts, so that
// n·ln2Hi is exact, and a polynomial of degree 6 (Cephes expf, error below 2 ulp).
const (
	log2e  = 1.44269504088896341
	ln2Hi  = 0.693359375
	ln2Lo  = -2.12194440e-4
	expMax = 88.72283905
	expMin = -87.33654475
	expC0  = 1.9875691500e-4
	expC1  = 1.3981999507e-3
	expC2  = 8.3334519073e-3
	expC3  = 4.1665795894e-2
	expC4  = 1.6666665459e-1
	expC5  = 5.0000001201e-1
	// roundMagic added to and taken from a small number rounds it to an integer.
	roundMagic = 12582912.0
)

// exp32 is exp in f32: 0 below −87.34 (no denormals), +Inf above 88.72, NaN for NaN.
func exp32(x float32) float32 {
	switch {
	case x < expMin:
		return 0
	case x > expMax:
		return float32(math.Inf(1))
	case x != x:
		return x
	}
	n := float32(x*log2e+roundMagic) - roundMagic
	r := x - n*ln2Hi - n*ln2Lo
	p := float32(expC0)
	p = p*r + expC1
	p = p*r + expC2
	p = p*r + expC3
	p = p*r + expC4
	p = p*r + expC5
	p = p*r*r + r + 1
	// 2^n in two factors: n may be 128, beyond the exponents of f32.
	i := int32(n)
	h := i >> 1
	return p * math.Float32frombits(uint32(h+127)<<23) * math.Float32frombits(uint32(i-h+127)<<23)
}
