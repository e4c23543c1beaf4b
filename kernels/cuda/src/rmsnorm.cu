// RMSNorm (arXiv 1910.07467): a block for each row, for the weights blocks that share columns and rows.
#include "device.h"

#include "columns.h"

// Grid (rows), threads a multiple of 32: the sum's order depends on their number alone.
template <class T>
DEVICE void forward(T* y, float* rstd, const T* x, const T* gamma, int dim, float eps) {
  const int N = Pack<T>::N;
  SHARED(float, scratch, [32]);
  long at = (long)block_x() * dim;
  x += at, y += at;
  bool whole_packs = whole<N>(x) && whole<N>(y) && whole<N>(gamma);
  float s = 0, v[N], g[N];
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) s = fma_(v[i], v[i], s);
    });
  }
  float r = 1 / sqrt_(block_sum(s, scratch) / dim + eps);
  if (thread() == 0) rstd[block_x()] = r;
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      load<N>(g, gamma + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) v[i] = v[i] * r * g[i];
      store<N>(y + c, v, left, fast);
    });
  }
}

// dx (+)= rstd·gamma·dy - x·rstd³·mean(gamma·dy·x). Grid and threads as in forward.
template <class T>
DEVICE void backward_input(T* dx, const T* dy, const T* x, const float* rstd, const T* gamma, int dim, bool accumulate) {
  const int N = Pack<T>::N;
  SHARED(float, scratch, [32]);
  long at = (long)block_x() * dim;
  x += at, dy += at, dx += at;
  bool whole_packs = whole<N>(x) && whole<N>(dy) && whole<N>(dx) && whole<N>(gamma);
  float s = 0, v[N], g[N], d[N], old[N];
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      load<N>(d, dy + c, left, fast);
      load<N>(g, gamma + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) s = fma_(g[i] * d[i], v[i], s);
    });
  }
  float r = rstd[block_x()], k = r * r * r * (block_sum(s, scratch) / dim);
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      load<N>(d, dy + c, left, fast);
      load<N>(g, gamma + c, left, fast);
      if (accumulate) load<N>(old, dx + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) {
        d[i] = fma_(-k, v[i], r * g[i] * d[i]);
        if (accumulate) d[i] += old[i];
      }
      store<N>(dx + c, d, left, fast);
    });
  }
}

// Parts of dgamma = Σ_rows dy·x·rstd, for add_columns.
template <class T>
DEVICE void backward_weight(float* parts, const T* dy, const T* x, const float* rstd, int rows, int dim, int chunk) {
  const int N = Pack<T>::N;
  float sums[1][N];
  sum_columns(sums, parts, rows, dim, chunk, whole<N>(dy) && whole<N>(x) && dim % N == 0,
              [&](int row, int c, long left, bool fast) INLINE {
                float d[N], v[N], r = rstd[row];
                long at = (long)row * dim + c;
                load<N>(d, dy + at, left, fast);
                load<N>(v, x + at, left, fast);
                UNROLL for (int i = 0; i < N; i++) sums[0][i] = fma_(d[i] * v[i], r, sums[0][i]);
              });
}

#define RMSNORM(S, T)                                                                                                  \
  KERNEL(rmsnorm_forward_##S, 1024, T* y, float* rstd, const T* x, const T* gamma, int dim, float eps) {               \
    forward<T>(y, rstd, x, gamma, dim, eps);                                                                           \
  }                                                                                                                    \
  KERNEL(rmsnorm_backward_input_##S, 1024, T* dx, const T* dy, const T* x, const float* rstd, const T* gamma, int dim, \
         int accumulate) {                                                                                             \
    backward_input<T>(dx, dy, x, rstd, gamma, dim, accumulate != 0);                                                   \
  }                                                                                                                    \
  KERNEL(rmsnorm_backward_weight_##S, 256, float* parts, const T* dy, const T* x, const float* rstd, int rows, int dim, \
         int chunk) {                                                                                                  \
    backward_weight<T>(parts, dy, x, rstd, rows, dim, chunk);                                                          \
  }
EACH_TYPE(RMSNORM)
