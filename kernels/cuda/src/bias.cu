// A bias of a linear layer, and its gradient.
#include "device.h"

#include "columns.h"

// Columns of a block: a row may be the whole of a sequence, with one position a token.
const int kBiasColumns = 4096;

// Grid (rows, dim / kBiasColumns).
template <class T>
DEVICE void add_bias(T* x, const T* b, int dim) {
  const int N = Pack<T>::N;
  x += (long)block_x() * dim;
  int from = block_y() * kBiasColumns, to = (int)min_(dim, (long)from + kBiasColumns);
  bool whole_packs = whole<N>(x) && whole<N>(b);
  float v[N], u[N];
  for (int c = from + thread() * N; c < to; c += threads() * N) {
    in_packs<N>(whole_packs, to - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      load<N>(u, b + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) v[i] += u[i];
      store<N>(x + c, v, left, fast);
    });
  }
}

// Parts of Σ_rows dy, for add_columns.
template <class T>
DEVICE void backward_weight(float* parts, const T* dy, int rows, int dim, int chunk) {
  const int N = Pack<T>::N;
  float sums[1][N];
  sum_columns(sums, parts, rows, dim, chunk, whole<N>(dy) && dim % N == 0, [&](int row, int c, long left, bool fast) INLINE {
    float d[N];
    load<N>(d, dy + (long)row * dim + c, left, fast);
    UNROLL for (int i = 0; i < N; i++) sums[0][i] += d[i];
  });
}

#define BIAS(S, T)                                                                                           \
  KERNEL(add_bias_##S, 256, T* x, const T* b, int dim) { add_bias<T>(x, b, dim); }                           \
  KERNEL(bias_backward_weight_##S, 256, float* parts, const T* dy, int rows, int dim, int chunk) {           \
    backward_weight<T>(parts, dy, rows, dim, chunk);                                                         \
  }
EACH_TYPE(BIAS)
