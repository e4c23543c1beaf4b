package cpu

import "unsafe"

// goGemm is the plain Go kernel: 2 × 4 sums are what fits the 15 registers that the
// compiler has for floats on amd64.
var goGemm = gemmKernel{mr: 2, nr: 4, kc: tileKC, mc: 128, nc: 1024, tile: tileGo, transpose: transposeGo}

func tileGo(rows, cols, k int, a unsafe.Pointer, aStep int, b unsafe.Pointer, _ uintptr, c unsafe.Pointer, ldc int, alpha float32, accumulate bool) {
	const ld = tileKC + aPad
	var s [2][4]float32
	vb := unsafe.Slice((*float32)(b), k*4)
	if rows == 2 {
		var p00, p01, p02, p03, p10, p11, p12, p13 float32
		if aStep != 0 {
			va := unsafe.Slice((*float32)(a), (k-1)*aStep+2)
			for ; len(vb) >= 4 && len(va) >= 2; vb = vb[4:] {
				b0, b1, b2, b3 := vb[0], vb[1], vb[2], vb[3]
				x, y := va[0], va[1]
				p00, p01, p02, p03 = p00+x*b0, p01+x*b1, p02+x*b2, p03+x*b3
				p10, p11, p12, p13 = p10+y*b0, p11+y*b1, p12+y*b2, p13+y*b3
				va = va[min(aStep, len(va)):]
			}
		} else {
			va := unsafe.Slice((*float32)(a), ld+k)
			v0, v1 := va[:k], va[ld:ld+k]
			for i := 0; i < len(v0) && i < len(v1) && len(vb) >= 4; i++ {
				b0, b1, b2, b3 := vb[0], vb[1], vb[2], vb[3]
				x, y := v0[i], v1[i]
				p00, p01, p02, p03 = p00+x*b0, p01+x*b1, p02+x*b2, p03+x*b3
				p10, p11, p12, p13 = p10+y*b0, p11+y*b1, p12+y*b2, p13+y*b3
				vb = vb[4:]
			}
		}
		s = [2][4]float32{{p00, p01, p02, p03}, {p10, p11, p12, p13}}
	} else {
		step := max(1, aStep)
		va := unsafe.Slice((*float32)(a), (k-1)*step+1)
		for i := range k {
			x := va[i*step]
			for j := range 4 {
				s[0][j] += x * vb[i*4+j]
			}
		}
	}
	for i := range rows {
		row := unsafe.Slice((*float32)(floats(c, i*ldc)), cols)
		for j := range row {
			if accumulate {
				row[j] += alpha * s[i][j]
			} else {
				row[j] = alpha * s[i][j]
			}
		}
	}
}
