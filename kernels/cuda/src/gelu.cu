// GELU in the tanh form of GPT-2 (arXiv 1606.08415): x·(1 + tanh(u))/2, u = √(2/π)·(x + 0.044715·x³).
// (1 + tanh(u))/2 is 1/(1 + e^-2u), which loses nothing where tanh is near -1.
#include "device.h"

const float kTwoRoot = 1.59576912f, kCube = 0.044715f;  // 2·√(2/π)

template <class T>
DEVICE void forward(T* y, const T* x, long n) {
  const int N = Pack<T>::N;
  bool whole_packs = whole<N>(x) && whole<N>(y);
  long step = (long)blocks_x() * threads() * N;
  for (long at = ((long)block_x() * threads() + thread()) * N; at < n; at += step) {
    in_packs<N>(whole_packs, n - at, [&](long left, bool fast) INLINE {
      float v[N];
      load<N>(v, x + at, left, fast);
      UNROLL for (int i = 0; i < N; i++) v[i] *= sigmoid(kTwoRoot * v[i] * fma_(kCube * v[i], v[i], 1));
      store<N>(y + at, v, left, fast);
    });
  }
}

// dx may be dy or x.
template <class T>
DEVICE void backward(T* dx, const T* dy, const T* x, long n) {
  const int N = Pack<T>::N;
  bool whole_packs = whole<N>(x) && whole<N>(dy) && whole<N>(dx);
  long step = (long)blocks_x() * threads() * N;
  for (long at = ((long)block_x() * threads() + thread()) * N; at < n; at += step) {
    in_packs<N>(whole_packs, n - at, [&](long left, bool fast) INLINE {
      float v[N], d[N];
      load<N>(v, x + at, left, fast);
      load<N>(d, dy + at, left, fast);
      UNROLL for (int i = 0; i < N; i++) {
        float q = kCube * v[i] * v[i];
        float s = sigmoid(kTwoRoot * v[i] * (1 + q));
        d[i] *= fma_(v[i] * s * (1 - s), kTwoRoot * fma_(3, q, 1), s);
      }
      store<N>(dx + at, d, left, fast);
    });
  }
}

#define GELU(S, T)                                                                                          \
  KERNEL(gelu_forward_##S, 256, T* y, const T* x, long n) { forward<T>(y, x, n); }                          \
  KERNEL(gelu_backward_##S, 256, T* dx, const T* dy, const T* x, long n) { backward<T>(dx, dy, x, n); }
EACH_TYPE(GELU)
