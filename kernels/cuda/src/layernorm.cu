// LayerNorm (arXiv 1607.06450): a block for each row, for the weights one for each 32 columns.
#include "device.h"

#include "columns.h"

// Grid (rows), threads a multiple of 32. The variance is the mean of squared
// differences from the mean: the difference of two means would lose it where the mean is large.
template <class T>
DEVICE void forward(T* y, float* mean, float* rstd, const T* x, const T* gamma, const T* beta, int dim, float eps) {
  const int N = Pack<T>::N;
  SHARED(float, scratch, [32]);
  long at = (long)block_x() * dim;
  x += at, y += at;
  bool whole_packs = whole<N>(x) && whole<N>(y) && whole<N>(gamma) && whole<N>(beta);
  float s = 0, v[N], g[N], b[N];
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) s += v[i];
    });
  }
  float m = block_sum(s, scratch) / dim;
  s = 0;
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) s = i < left ? fma_(v[i] - m, v[i] - m, s) : s;
    });
  }
  float r = 1 / sqrt_(block_sum(s, scratch) / dim + eps);
  if (thread() == 0) mean[block_x()] = m, rstd[block_x()] = r;
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      load<N>(g, gamma + c, left, fast);
      load<N>(b, beta + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) v[i] = fma_((v[i] - m) * r, g[i], b[i]);
      store<N>(y + c, v, left, fast);
    });
  }
}

// dx (+)= rstd·(h - mean(h) - n·mean(h·n)), h = gamma·dy, n = (x - mean)·rstd.
template <class T>
DEVICE void backward_input(T* dx, const T* dy, const T* x, const float* mean, const float* rstd, const T* gamma, int dim,
                           bool accumulate) {
  const int N = Pack<T>::N;
  SHARED(float, scratch, [32]);
  long at = (long)block_x() * dim;
  x += at, dy += at, dx += at;
  bool whole_packs = whole<N>(x) && whole<N>(dy) && whole<N>(dx) && whole<N>(gamma);
  float m = mean[block_x()], r = rstd[block_x()], s = 0, t = 0, v[N], g[N], d[N], old[N];
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      load<N>(d, dy + c, left, fast);
      load<N>(g, gamma + c, left, fast);  // 0 beyond the row: adds nothing
      UNROLL for (int i = 0; i < N; i++) {
        s = fma_(g[i], d[i], s);
        t = fma_(g[i] * d[i], (v[i] - m) * r, t);
      }
    });
  }
  s = block_sum(s, scratch) / dim;
  t = block_sum(t, scratch) / dim;
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      load<N>(d, dy + c, left, fast);
      load<N>(g, gamma + c, left, fast);
      if (accumulate) load<N>(old, dx + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) {
        d[i] = r * (fma_(g[i], d[i], -s) - (v[i] - m) * r * t);
        if (accumulate) d[i] += old[i];
      }
      store<N>(dx + c, d, left, fast);
    });
  }
}

// Parts of dgamma = Σ_rows dy·(x - mean)·rstd and of dbeta = Σ_rows dy, in turn, for add_columns.
template <class T>
DEVICE void backward_weight(float* parts, const T* dy, const T* x, const float* mean, const float* rstd, int rows, int dim,
                            int chunk) {
  const int N = Pack<T>::N;
  float sums[2][N];
  sum_columns(sums, parts, rows, dim, chunk, whole<N>(dy) && whole<N>(x) && dim % N == 0,
              [&](int row, int c, long left, bool fast) INLINE {
                float d[N], v[N], m = mean[row], r = rstd[row];
                long at = (long)row * dim + c;
                load<N>(d, dy + at, left, fast);
                load<N>(v, x + at, left, fast);
                UNROLL for (int i = 0; i < N; i++) {
                  sums[0][i] = fma_(d[i] * (v[i] - m), r, sums[0][i]);
                  sums[1][i] += d[i];
                }
              });
}

#define LAYERNORM(S, T)                                                                                                  \
  KERNEL(layernorm_forward_##S, 1024, T* y, float* mean, float* rstd, const T* x, const T* gamma, const T* beta, int dim, \
         float eps) {                                                                                                    \
    forward<T>(y, mean, rstd, x, gamma, beta, dim, eps);                                                                 \
  }                                                                                                                      \
  KERNEL(layernorm_backward_input_##S, 1024, T* dx, const T* dy, const T* x, const float* mean, const float* rstd,       \
         const T* gamma, int dim, int accumulate) {                                                                      \
    backward_input<T>(dx, dy, x, mean, rstd, gamma, dim, accumulate != 0);                                               \
  }                                                                                                                      \
  KERNEL(layernorm_backward_weight_##S, 256, float* parts, const T* dy, const T* x, const float* mean,                   \
         const float* rstd, int rows, int dim, int chunk) {                                                              \
    backward_weight<T>(parts, dy, x, mean, rstd, rows, dim, chunk);                                                      \
  }
EACH_TYPE(LAYERNORM)
