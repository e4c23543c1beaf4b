// SwiGLU (arXiv 2002.05202): y = silu(g)·u. Grid (rows) of gu, in which g comes first.
#include "device.h"

template <class T>
DEVICE void forward(T* y, const T* gu, int ffn) {
  const int N = Pack<T>::N;
  const T *g = gu + (long)block_x() * 2 * ffn, *u = g + ffn;
  y += (long)block_x() * ffn;
  bool fg = whole<N>(g), fu = whole<N>(u), fy = whole<N>(y);
  float a[N], b[N];
  for (int c = thread() * N; c < ffn; c += threads() * N) {
    load<N>(a, g + c, ffn - c, fg);
    load<N>(b, u + c, ffn - c, fu);
    UNROLL for (int i = 0; i < N; i++) a[i] = a[i] * sigmoid(a[i]) * b[i];
    store<N>(y + c, a, ffn - c, fy);
  }
}

// dgu may be gu: a thread reads what it overwrites.
template <class T>
DEVICE void backward(T* dgu, const T* dy, const T* gu, int ffn) {
  const int N = Pack<T>::N;
  const T *g = gu + (long)block_x() * 2 * ffn, *u = g + ffn;
  T *dg = dgu + (long)block_x() * 2 * ffn, *du = dg + ffn;
  dy += (long)block_x() * ffn;
  bool fg = whole<N>(g), fu = whole<N>(u), fy = whole<N>(dy), fdg = whole<N>(dg), fdu = whole<N>(du);
  float a[N], b[N], d[N];
  for (int c = thread() * N; c < ffn; c += threads() * N) {
    load<N>(a, g + c, ffn - c, fg);
    load<N>(b, u + c, ffn - c, fu);
    load<N>(d, dy + c, ffn - c, fy);
    UNROLL for (int i = 0; i < N; i++) {
      float s = sigmoid(a[i]);
      b[i] = d[i] * b[i] * s * fma_(a[i], 1 - s, 1);
      d[i] = d[i] * a[i] * s;
    }
    store<N>(dg + c, b, ffn - c, fdg);
    store<N>(du + c, d, ffn - c, fdu);
  }
}

#define SWIGLU(S, T)                                                                                              \
  KERNEL(swiglu_forward_##S, 256, T* y, const T* gu, int ffn) { forward<T>(y, gu, ffn); }                         \
  KERNEL(swiglu_backward_##S, 256, T* dgu, const T* dy, const T* gu, int ffn) { backward<T>(dgu, dy, gu, ffn); }
EACH_TYPE(SWIGLU)
