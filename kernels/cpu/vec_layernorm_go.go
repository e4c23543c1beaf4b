package cpu

// squaresAboutGo is Σ (x−m)².
func squaresAboutGo(x []float32, m float32) float32 {
	var s0, s1, s2, s3 float32
	for len(x) >= 4 {
		a, b, c, d := x[0]-m, x[1]-m, x[2]-m, x[3]-m
		s0 += a * a
		s1 += b * b
		s2 += c * c
		s3 += d * d
		x = x[4:]
	}
	for _, v := range x {
		s0 += (v - m) * (v - m)
	}
	return (s0 + s1) + (s2 + s3)
}

// normaliseGo is y = (x−m)·r·gamma + beta.
func normaliseGo(y, x, gamma, beta []float32, m, r float32) {
	x, gamma, beta = x[:len(y)], gamma[:len(y)], beta[:len(y)]
	for i := range y {
		y[i] = (x[i]-m)*r*gamma[i] + beta[i]
	}
}

// dotAboutGo is Σ a·b·(c−m).
func dotAboutGo(a, b, c []float32, m float32) float32 {
	b, c = b[:len(a)], c[:len(a)]
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 && len(c) >= 4 {
		s0 += a[0] * b[0] * (c[0] - m)
		s1 += a[1] * b[1] * (c[1] - m)
		s2 += a[2] * b[2] * (c[2] - m)
		s3 += a[3] * b[3] * (c[3] - m)
		a, b, c = a[4:], b[4:], c[4:]
	}
	for i := range a {
		s0 += a[i] * b[i] * (c[i] - m)
	}
	return (s0 + s1) + (s2 + s3)
}

// layerNormGradGo is dx = r·(gamma·dy − mean − (x−m)·c).
func layerNormGradGo(dx, dy, x, gamma []float32, m, r, mean, c float32) {
	dy, x, gamma = dy[:len(dx)], x[:len(dx)], gamma[:len(dx)]
	for i := range dx {
		dx[i] = r * (gamma[i]*dy[i] - mean - (x[i]-m)*c)
	}
}

func layerNormGradAddGo(dx, dy, x, gamma []float32, m, r, mean, c float32) {
	dy, x, gamma = dy[:len(dx)], x[:len(dx)], gamma[:len(dx)]
	for i := range dx {
		dx[i] += r * (gamma[i]*dy[i] - mean - (x[i]-m)*c)
	}
}

// mulAboutGo is dst += a·(b−m)·r.
func mulAboutGo(dst, a, b []float32, m, r float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] += a[i] * (b[i] - m) * r
	}
}
