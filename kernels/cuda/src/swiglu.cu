// SwiGLU (arXiv 2002.05202): y = silu(g)·u. Grid (rows) of gu, in which g comes first.
#include "device.h"

template <class T>
DEVICE void forward(T* y, const T* gu, int ffn) {
  const int N = Pack<T>::N;
  const T *g = gu + (long)block_x() * 2 * ffn, *u = g + ffn;
  y += (long)block_x() * ffn;
  bool whole_packs = whole<N>(g) && whole<N>(u) && whole<N>(y);
  for (int c = thread() * N; c < ffn; c += threads() * N) {
    in_packs<N>(whole_packs, ffn - c, [&](long left, bool fast) INLINE {
      float a[N], b[N];
      load<N>(a, g + c, left, fast);
      load<N>(b, u + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) a[i] = a[i] * sigmoid(a[i]) * b[i];
      store<N>(y + c, a, left, fast);
    });
  }
}

// dgu may be gu: a thread reads what it overwrites.
template <class T>
DEVICE void backward(T* dgu, const T* dy, const T* gu, int ffn) {
  const int N = Pack<T>::N;
  const T *g = gu + (long)block_x() * 2 * ffn, *u = g + ffn;
  T *dg = dgu + (long)block_x() * 2 * ffn, *du = dg + ffn;
  dy += (long)block_x() * ffn;
  bool whole_packs = whole<N>(g) && whole<N>(u) && whole<N>(dy) && whole<N>(dg) && whole<N>(du);
  for (int c = thread() * N; c < ffn; c += threads() * N) {
    in_packs<N>(whole_packs, ffn - c, [&](long left, bool fast) INLINE {
      float a[N], b[N], d[N];
      load<N>(a, g + c, left, fast);
      load<N>(b, u + c, left, fast);
      load<N>(d, dy + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) {
        float s = sigmoid(a[i]);
        b[i] = d[i] * b[i] * s * fma_(a[i], 1 - s, 1);
        d[i] = d[i] * a[i] * s;
      }
      store<N>(dg + c, b, left, fast);
      store<N>(du + c, d, left, fast);
    });
  }
}

#define SWIGLU(S, T)                                                                                              \
  KERNEL(swiglu_forward_##S, 256, T* y, const T* gu, int ffn) { forward<T>(y, gu, ffn); }                         \
  KERNEL(swiglu_backward_##S, 256, T* dgu, const T* dy, const T* gu, int ffn) { backward<T>(dgu, dy, gu, ffn); }
EACH_TYPE(SWIGLU)
