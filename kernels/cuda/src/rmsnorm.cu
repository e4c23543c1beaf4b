// RMSNorm (arXiv 1910.07467): a block for each row, for the weights one for each 32 columns.
#include "device.h"

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

// dgamma += Σ_rows dy·x·rstd. Grid (columns / 32), 1024 threads: 32 share a column's
// rows, and their sums are added in a fixed order.
template <class T>
DEVICE void backward_weight(float* dgamma, const T* dy, const T* x, const float* rstd, int rows, int dim) {
  SHARED(float, part, [32][33]);
  int tx = thread() % 32, ty = thread() / 32, c = block_x() * 32 + tx;
  float s = 0;
  if (c < dim) {
    UNROLL4 for (int i = ty; i < rows; i += 32) {
      long at = (long)i * dim + c;
      s = fma_(get(dy[at]) * get(x[at]), rstd[i], s);
    }
  }
  part[ty][tx] = s;
  barrier();
  if (ty == 0 && c < dim) {
    for (int i = 1; i < 32; i++) s += part[i][tx];
    dgamma[c] += s;
  }
}

#define RMSNORM(S, T)                                                                                                  \
  KERNEL(rmsnorm_forward_##S, 1024, T* y, float* rstd, const T* x, const T* gamma, int dim, float eps) {               \
    forward<T>(y, rstd, x, gamma, dim, eps);                                                                           \
  }                                                                                                                    \
  KERNEL(rmsnorm_backward_input_##S, 1024, T* dx, const T* dy, const T* x, const float* rstd, const T* gamma, int dim, \
         int accumulate) {                                                                                             \
    backward_input<T>(dx, dy, x, rstd, gamma, dim, accumulate != 0);                                                   \
  }                                                                                                                    \
  KERNEL(rmsnorm_backward_weight_##S, 1024, float* dgamma, const T* dy, const T* x, const float* rstd, int rows, int dim) { \
    backward_weight<T>(dgamma, dy, x, rstd, rows, dim);                                                                \
  }
EACH_TYPE(RMSNORM)
