package cpu

import "unsafe"

//go:generate sh -c "cd asm && go run . -isa avx512 -out ../kernels_avx512_amd64.s -stubs ../kernels_avx512_amd64.go -pkg cpu"
//go:generate sh -c "cd asm && go run . -isa avx2 -out ../kernels_avx2_amd64.s -stubs ../kernels_avx2_amd64.go -pkg cpu"
//go:generate sh -c "cd asm && go run . -isa avx512bf16 -out ../kernels_bf16_amd64.s -stubs ../kernels_bf16_amd64.go -pkg cpu"

func init() {
	var have []*vecKernels
	if hasAVX512() && hasAVX2() {
		if hasAVX512BF16() {
			have = append(have, &bf16Kernels)
		}
		have = append(have, &avx512Kernels)
	}
	if hasAVX2() {
		have = append(have, &avx2Kernels)
	}
	isas = append(have, isas...)
}

var avx512Kernels = vecKernels{
	name:             "avx512",
	add:              addAVX512,
	scale:            scaleAVX512,
	mulAcc:           mulAccAVX512,
	scaleMul:         scaleMulAVX512,
	dot:              dotAVX512,
	dot3:             dot3AVX512,
	max:              maxAVX512,
	sum:              sumAVX512,
	sumSquares:       sumSquaresAVX512,
	sumExp:           sumExpAVX512,
	expSum:           expSumAVX512,
	expScale:         expScaleAVX512,
	normGrad:         normGradAVX512,
	normGradAdd:      normGradAddAVX512,
	squaresAbout:     squaresAboutAVX512,
	dotAbout:         dotAboutAVX512,
	normalise:        normaliseAVX512,
	mulAbout:         mulAboutAVX512,
	layerNormGrad:    layerNormGradAVX512,
	layerNormGradAdd: layerNormGradAddAVX512,
	gelu:             geluAVX512,
	geluGrad:         geluGradAVX512,
	widen:            func(dst []float32, src []uint16) { widenWhole(dst, src, 16, widenAVX512) },
	narrow:           func(dst []uint16, src []float32) { narrowWhole(dst, src, 16, narrowAVX512) },
	rotate:           rotateAVX512,
	rotateBack:       rotateBackAVX512,
	swiglu:           swigluAVX512,
	swigluGrad:       swigluGradAVX512,
	softmaxGrad:      softmaxGradAVX512,
	adamw:            func(w, g, m, v []float32, p *adamParams) { adamwAVX512(w, g, m, v, &p.beta1) },
	sgd:              func(w, g, b []float32, p *sgdParams) { sgdAVX512(w, g, b, &p.gradScale) },
	sgdPlain:         func(w, g []float32, p *sgdParams) { sgdPlainAVX512(w, g, &p.gradScale) },
	gemm: gemmKernel{
		fast: true, mr: 14, nr: 32, kc: tileKC, mc: 24 * 14, nc: 4096,
		tile:      tiles{tilesAVX512[:], tilesTAVX512[:]}.run,
		transpose: transposeAVX2,
	},
}

// bf16Kernels are those of AVX-512, and products of bf16 by AVX512-BF16.
var bf16Kernels = func() vecKernels {
	k := avx512Kernels
	k.name = "avx512bf16"
	k.pairs = &pairKernel{
		heights:      []int{14, 8, 4, 2, 1},
		byRows:       []pairTile{lowTile14BF16, lowTile8BF16, lowTile4BF16, lowTile2BF16, lowTile1BF16},
		byCol:        []pairTile{lowTileT14BF16, lowTileT8BF16, lowTileT4BF16, lowTileT2BF16, lowTileT1BF16},
		interleave16: interleave16BF16, interleave32: interleave32BF16,
		scaleLow: scaleLowBF16, dotLow: dotLowBF16,
		transpose: func(dst, src unsafe.Pointer, ld, blocks int) {
			transpose8AVX2((*float32)(dst), (*float32)(src), ld, pairCols*4, blocks)
		},
	}
	return k
}()

var avx2Kernels = vecKernels{
	name:             "avx2",
	add:              addAVX2,
	scale:            scaleAVX2,
	mulAcc:           mulAccAVX2,
	scaleMul:         scaleMulAVX2,
	dot:              dotAVX2,
	dot3:             dot3AVX2,
	max:              maxAVX2,
	sum:              sumAVX2,
	sumSquares:       sumSquaresAVX2,
	sumExp:           sumExpAVX2,
	expSum:           expSumAVX2,
	expScale:         expScaleAVX2,
	normGrad:         normGradAVX2,
	normGradAdd:      normGradAddAVX2,
	squaresAbout:     squaresAboutAVX2,
	dotAbout:         dotAboutAVX2,
	normalise:        normaliseAVX2,
	mulAbout:         mulAboutAVX2,
	layerNormGrad:    layerNormGradAVX2,
	layerNormGradAdd: layerNormGradAddAVX2,
	gelu:             geluAVX2,
	geluGrad:         geluGradAVX2,
	widen:            func(dst []float32, src []uint16) { widenWhole(dst, src, 8, widenAVX2) },
	narrow:           func(dst []uint16, src []float32) { narrowWhole(dst, src, 8, narrowAVX2) },
	rotate:           rotateAVX2,
	rotateBack:       rotateBackAVX2,
	swiglu:           swigluAVX2,
	swigluGrad:       swigluGradAVX2,
	softmaxGrad:      softmaxGradAVX2,
	adamw:            func(w, g, m, v []float32, p *adamParams) { adamwAVX2(w, g, m, v, &p.beta1) },
	sgd:              func(w, g, b []float32, p *sgdParams) { sgdAVX2(w, g, b, &p.gradScale) },
	sgdPlain:         func(w, g []float32, p *sgdParams) { sgdPlainAVX2(w, g, &p.gradScale) },
	gemm: gemmKernel{
		fast: true, mr: 6, nr: 16, kc: tileKC, mc: 56 * 6, nc: 4096,
		tile:      tiles{tilesAVX2[:], tilesTAVX2[:]}.run,
		transpose: transposeAVX2,
	},
}

// widenWhole leaves whole vectors to the assembly and the rest to the plain version.
func widenWhole(dst []float32, src []uint16, lanes int, f func(*float32, *uint16, int)) {
	n := len(dst) / lanes
	if n > 0 {
		f(&dst[0], &src[:len(dst)][0], n)
	}
	widenGo(dst[n*lanes:], src[n*lanes:])
}

// narrowWhole is widenWhole the other way.
func narrowWhole(dst []uint16, src []float32, lanes int, f func(*uint16, *float32, int)) {
	n := len(dst) / lanes
	if n > 0 {
		f(&dst[0], &src[:len(dst)][0], n)
	}
	narrowGo(dst[n*lanes:], src[n*lanes:])
}

// tileFunc is one generated kernel; its rows are in its name.
type tileFunc func(k int, a *float32, aStep int, b *float32, ahead uintptr, c *float32, ldc int, alpha float32, accumulate bool, cols int)

var (
	tilesAVX512 = [...]tileFunc{nil, tile1AVX512, tile2AVX512, tile3AVX512, tile4AVX512, tile5AVX512, tile6AVX512, tile7AVX512,
		tile8AVX512, tile9AVX512, tile10AVX512, tile11AVX512, tile12AVX512, tile13AVX512, tile14AVX512}
	tilesTAVX512 = [...]tileFunc{nil, tileT1AVX512, tileT2AVX512, tileT3AVX512, tileT4AVX512, tileT5AVX512, tileT6AVX512, tileT7AVX512,
		tileT8AVX512, tileT9AVX512, tileT10AVX512, tileT11AVX512, tileT12AVX512, tileT13AVX512, tileT14AVX512}
	tilesAVX2  = [...]tileFunc{nil, tile1AVX2, tile2AVX2, tile3AVX2, tile4AVX2, tile5AVX2, tile6AVX2}
	tilesTAVX2 = [...]tileFunc{nil, tileT1AVX2, tileT2AVX2, tileT3AVX2, tileT4AVX2, tileT5AVX2, tileT6AVX2}
)

// tiles are the kernels of an instruction set by their number of rows.
type tiles struct{ byRows, interleaved []tileFunc }

func (t tiles) run(rows, cols, k int, a unsafe.Pointer, aStep int, b unsafe.Pointer, ahead uintptr, c unsafe.Pointer, ldc int, alpha float32, accumulate bool) {
	f := t.byRows
	if aStep != 0 {
		f = t.interleaved
	}
	f[rows](k, (*float32)(a), aStep, (*float32)(b), ahead, (*float32)(c), ldc, alpha, accumulate, cols)
}

// transposeAVX2 is gemmKernel.transpose in blocks of 8 × 8.
func transposeAVX2(dst, src unsafe.Pointer, ld, cols, k, nr int) {
	if cols < nr {
		clear(unsafe.Slice((*float32)(dst), k*nr))
	}
	whole := k / 8 * 8
	j := 0
	for ; j+8 <= cols; j += 8 {
		transpose8AVX2((*float32)(floats(dst, j)), (*float32)(floats(src, j*ld)), ld*4, nr*4, k/8)
	}
	rest := func(j, from int) {
		in := unsafe.Slice((*float32)(floats(src, j*ld)), k)
		out := unsafe.Slice((*float32)(floats(dst, j)), (k-1)*nr+1)
		for i := from; i < k; i++ {
			out[i*nr] = in[i]
		}
	}
	if whole < k {
		for i := range j {
			rest(i, whole)
		}
	}
	for ; j < cols; j++ {
		rest(j, 0)
	}
}
