// C = alpha·op(A)·op(B) + beta·C by tiles through shared memory, accumulated in fp32:
// for cards whose machine has no cublasLt, and for tests. A and B of one type.
#include "device.h"

// A block computes (16·P)² elements of C, a thread P × P of them, 16 apart: so
// neighbouring threads read neighbouring words of shared memory.
template <int P>
struct Tile {
  float a[16][16 * P + 1], b[16][16 * P + 1];
};

// fetch reads a thread's share of a tile into registers: element (i, l) of the
// matrix is p[i·ld + l], or p[l·ld + i] when it lies across. Neighbouring threads read along
// what is contiguous. Outside of rows × depth it is 0.
template <int P, class T>
DEVICE void fetch(float* r, const T* p, long ld, bool across, int i0, int l0, int rows, int depth) {
  const int size = 16 * P;
  UNROLL for (int q = 0; q < P; q++) {
    int e = thread() + 256 * q;
    int i = i0 + (across ? e % size : e / 16), l = l0 + (across ? e / size : e % 16);
    r[q] = i < rows && l < depth ? get(p[across ? l * ld + i : i * ld + l]) : 0;
  }
}

template <int P>
DEVICE void keep(float (*s)[16 * P + 1], const float* r, bool across) {
  const int size = 16 * P;
  UNROLL for (int q = 0; q < P; q++) {
    int e = thread() + 256 * q;
    s[across ? e / size : e % 16][across ? e % size : e / 16] = r[q];
  }
}

// Grid (tiles of rows · tiles of columns), columns fastest; 256 threads. C is not read where beta is 0.
template <int P, class T, class U>
DEVICE void gemm(Tile<P>& t, bool trans_a, bool trans_b, int m, int n, int k, float alpha, const T* a, long lda, const T* b,
                 long ldb, float beta, U* c, long ldc) {
  const int size = 16 * P;
  int tiles_n = (n + size - 1) / size;
  int i0 = block_x() / tiles_n * size, j0 = block_x() % tiles_n * size;
  int tx = thread() % 16, ty = thread() / 16;
  float acc[P][P], ra[P], rb[P];
  UNROLL for (int i = 0; i < P; i++)
    UNROLL for (int j = 0; j < P; j++) acc[i][j] = 0;
  fetch<P>(ra, a, lda, trans_a, i0, 0, m, k);
  fetch<P>(rb, b, ldb, !trans_b, j0, 0, n, k);
  for (int l0 = 0; l0 < k; l0 += 16) {
    keep<P>(t.a, ra, trans_a);
    keep<P>(t.b, rb, !trans_b);
    barrier();  // the tile is complete
    if (l0 + 16 < k) {  // on its way while the tile is multiplied
      fetch<P>(ra, a, lda, trans_a, i0, l0 + 16, m, k);
      fetch<P>(rb, b, ldb, !trans_b, j0, l0 + 16, n, k);
    }
    UNROLL4 for (int l = 0; l < 16; l++) {
      float x[P], y[P];
      UNROLL for (int i = 0; i < P; i++) x[i] = t.a[l][ty + 16 * i];
      UNROLL for (int j = 0; j < P; j++) y[j] = t.b[l][tx + 16 * j];
      UNROLL for (int i = 0; i < P; i++)
        UNROLL for (int j = 0; j < P; j++) acc[i][j] = fma_(x[i], y[j], acc[i][j]);
    }
    barrier();  // the tile may be overwritten
  }
  UNROLL for (int i = 0; i < P; i++)
    UNROLL for (int j = 0; j < P; j++) {
      int row = i0 + ty + 16 * i, col = j0 + tx + 16 * j;
      if (row >= m || col >= n) continue;
      U* p = c + row * ldc + col;
      put(p, beta == 0 ? alpha * acc[i][j] : fma_(alpha, acc[i][j], beta * get(*p)));
    }
}

#define GEMM(name, P, T, U)                                                                                           \
  KERNEL(name, 256, int trans_a, int trans_b, int m, int n, int k, float alpha, const T* a, long lda, const T* b,     \
         long ldb, float beta, U* c, long ldc) {                                                                      \
    SHARED(Tile<P>, tile, [1]);                                                                                       \
    gemm<P>(tile[0], trans_a != 0, trans_b != 0, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                       \
  }

// gemm_<tile's side>_<type of A and B>_<type of C>. The small tile is for products whose
// large tiles would not occupy the card.
GEMM(gemm_32_f32_f32, 2, float, float)
GEMM(gemm_128_f32_f32, 8, float, float)
GEMM(gemm_32_bf16_f32, 2, bf16, float)
GEMM(gemm_128_bf16_f32, 8, bf16, float)
GEMM(gemm_32_bf16_bf16, 2, bf16, bf16)
GEMM(gemm_128_bf16_bf16, 8, bf16, bf16)
