package emutest

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// The kernels of these tests have one warp, which does what the name says with what each lane is given.
const fragmentKernels = `#include "device.h"

KERNEL(test_mma, 32, float* c, const unsigned* a, const unsigned* b) {
  unsigned ra[4], rb[2];
  float rc[4];
  for (int i = 0; i < 4; i++) ra[i] = a[thread() * 4 + i], rc[i] = c[thread() * 4 + i];
  for (int i = 0; i < 2; i++) rb[i] = b[thread() * 2 + i];
  mma_bf16(rc, ra, rb);
  for (int i = 0; i < 4; i++) c[thread() * 4 + i] = rc[i];
}

// rows: where in the shared memory each lane's row begins.
KERNEL(test_ldmatrix, 32, unsigned* r, const unsigned* words, const int* rows, int trans) {
  SHARED(unsigned, memory, [256]);
  for (int i = thread(); i < 256; i += 32) memory[i] = words[i];
  barrier();
  unsigned got[4];
  if (trans) {
    ldmatrix4_trans(got, memory + rows[thread()]);
  } else {
    ldmatrix4(got, memory + rows[thread()]);
  }
  for (int i = 0; i < 4; i++) r[thread() * 4 + i] = got[i];
}
`

func fragments(t *testing.T) *Library {
	t.Helper()
	folder := t.TempDir()
	headers, _ := filepath.Glob(filepath.Join(Root(), "src", "*.h"))
	for _, h := range headers {
		b, err := os.ReadFile(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(h)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "fragments.cu"), []byte(fragmentKernels), 0o644); err != nil {
		t.Fatal(err)
	}
	return library(t, Options{Sources: folder})
}

// Where element i of a lane's fragment lies, in the words of the PTX ISA, section "Matrix Fragments for mma.m16n8k16 with
// floating point type": groupID = %laneid >> 2, threadID_in_group = %laneid % 4.
func placeA(lane, i int) (row, col int) {
	groupID, threadIDInGroup := lane>>2, lane%4
	row, col = groupID+8, threadIDInGroup*2+i&1+8
	if 0 <= i && i < 2 || 4 <= i && i < 6 {
		row = groupID
	}
	if i < 4 {
		col = threadIDInGroup*2 + i&1
	}
	return row, col
}

func placeB(lane, i int) (row, col int) {
	row = lane%4*2 + i&1
	if i >= 2 {
		row += 8
	}
	return row, lane >> 2
}

func placeC(lane, i int) (row, col int) {
	row = lane >> 2
	if i >= 2 {
		row += 8
	}
	return row, lane%4*2 + i&1
}

// The same for A in the words of CUTLASS (include/cute/atom/mma_traits_sm80.hpp, SM80_16x8_Row and the traits of
// SM80_16x8x16_F32BF16BF16F32_TN): shape ((4,8),(2,2,2)), stride ((32,1),(16,8,128)) into 16 × 16 by columns.
func cuteA(lane, i int) (row, col int) {
	at := lane%4*32 + lane/4 + i%2*16 + i/2%2*8 + i/4*128
	return at % 16, at / 16
}

// A matrix product whose fragments are laid out as NVIDIA documents them comes out right: gpu.h and the emulation
// have the layout from there, and not from each other.
func TestMatrixFragments(t *testing.T) {
	l := fragments(t)
	var a [16][16]float64
	var b [16][8]float64
	var c, want [16][8]float64
	for i := range a {
		for k := range a[i] {
			a[i][k] = rounded(math.Sin(float64(17*i + k))).wide()
		}
		for j := range b[i] {
			b[i][j] = rounded(math.Cos(float64(13*i + 3*j))).wide()
			c[i][j] = float64(float32(math.Sin(float64(5*i + 7*j))))
		}
	}
	for i := range want {
		for j := range want[i] {
			want[i][j] = c[i][j]
			for k := range a[i] {
				want[i][j] += a[i][k] * b[k][j]
			}
		}
	}
	ra, rb, rc := make([]uint32, 32*4), make([]uint32, 32*2), make([]float32, 32*4)
	put := func(to []uint32, lane, perLane, i int, v float64) { // elements low to high in a register
		to[lane*perLane+i/2] |= uint32(rounded(v)) << (16 * (i % 2))
	}
	for lane := range 32 {
		for i := range 8 {
			row, col := placeA(lane, i)
			if r, c := cuteA(lane, i); r != row || c != col {
				t.Fatalf("lane %d, element %d of A: the ISA says %d, %d, CUTLASS %d, %d", lane, i, row, col, r, c)
			}
			put(ra, lane, 4, i, a[row][col])
		}
		for i := range 4 {
			row, col := placeB(lane, i)
			put(rb, lane, 2, i, b[row][col])
			row, col = placeC(lane, i)
			rc[lane*4+i] = float32(c[row][col])
		}
	}
	ma, mb, mc := From(l, ra, 0), From(l, rb, 0), From(l, rc, 0)
	if err := l.Launch("test_mma", 1, 1, 32, 0, mc.Ptr(), ma.Ptr(), mb.Ptr()); err != nil {
		t.Fatal(err)
	}
	for lane := range 32 {
		for i := range 4 {
			row, col := placeC(lane, i)
			if got := float64(mc.V[lane*4+i]); math.Abs(got-want[row][col]) > 1e-5 {
				t.Errorf("row %d, column %d: %g, want %g", row, col, got, want[row][col])
			}
		}
	}
}

// ldmatrix in the words of the PTX ISA: of .x4 threads 0-7 name the rows of the first matrix, 8-15 of the second, and so
// on; of an 8 × 8 matrix each lane receives a row's two elements, row %laneid / 4, elements 2·(%laneid % 4) and the next;
// .trans loads by columns.
func TestLoadMatrix(t *testing.T) {
	l := fragments(t)
	words := make([]uint32, 256) // 512 halves, each its own number
	for i := range words {
		words[i] = uint32(2*i) | uint32(2*i+1)<<16
	}
	rows := make([]int32, 32)
	for lane := range rows {
		rows[lane] = int32((lane*7 + 3) % 64 * 4) // 16 bytes each, in any order
	}
	half := func(matrix, row, col int) uint32 { return uint32(2*int(rows[8*matrix+row]) + col) }
	for _, trans := range []int{0, 1} {
		r := NewMemory[uint32](l, 128, 0)
		if err := l.Launch("test_ldmatrix", 1, 1, 32, 0, r.Ptr(), From(l, words, 0).Ptr(), From(l, rows, 0).Ptr(), trans); err != nil {
			t.Fatal(err)
		}
		for lane := range 32 {
			for matrix := range 4 {
				row, col := lane/4, lane%4*2
				want := half(matrix, row, col) | half(matrix, row, col+1)<<16
				if trans == 1 {
					want = half(matrix, col, row) | half(matrix, col+1, row)<<16
				}
				if got := r.V[lane*4+matrix]; got != want {
					t.Errorf("trans %d, lane %d, matrix %d: %#x, want %#x", trans, lane, matrix, got, want)
				}
			}
		}
	}
}
