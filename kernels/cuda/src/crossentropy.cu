// Cross-entropy over the vocabulary: grid (rows), threads a multiple of 32.
#include "device.h"

// One pass: each thread keeps its maximum and the sum of exponentials below it.
template <class T>
DEVICE void forward(float* loss, float* lse, const T* logits, const int* targets, int vocab, u64* fault) {
  const int N = Pack<T>::N;
  SHARED(float, scratch, [32]);
  int target = targets[block_x()];
  if (id_outside(target, vocab, block_x(), fault)) return;
  const T* x = logits + (long)block_x() * vocab;
  bool fast = whole<N>(x);
  float top = -kInfinity, s = 0, v[N];
  for (int c = thread() * N; c < vocab; c += threads() * N) {
    load<N>(v, x + c, vocab - c, fast);
    float m = top;
    UNROLL for (int i = 0; i < N; i++) m = max_(m, c + i < vocab ? v[i] : -kInfinity);
    if (m == -kInfinity) continue;
    s *= exp_(top - m);
    top = m;
    UNROLL for (int i = 0; i < N; i++) s += c + i < vocab ? exp_(v[i] - m) : 0;
  }
  float m = block_max(top, scratch);
  s = log_(block_sum(top == -kInfinity ? 0 : s * exp_(top - m), scratch));
  if (thread() == 0) {
    lse[block_x()] = m + s;
    loss[block_x()] = m - get(x[target]) + s;  // in this order, as small losses are differences of large numbers
  }
}

// dlogits may be logits: a thread reads what it overwrites.
template <class T>
DEVICE void backward(T* dlogits, const T* logits, const float* lse, const int* targets, int vocab, float scale, u64* fault) {
  const int N = Pack<T>::N;
  int target = targets[block_x()];
  if (id_outside(target, vocab, block_x(), fault)) return;
  const T* x = logits + (long)block_x() * vocab;
  T* d = dlogits + (long)block_x() * vocab;
  bool fx = whole<N>(x), fd = whole<N>(d);
  float e = lse[block_x()], v[N];
  for (int c = thread() * N; c < vocab; c += threads() * N) {
    load<N>(v, x + c, vocab - c, fx);
    UNROLL for (int i = 0; i < N; i++) v[i] = (exp_(v[i] - e) - (c + i == target ? 1.0f : 0.0f)) * scale;
    store<N>(d + c, v, vocab - c, fd);
  }
}

#define CROSSENTROPY(S, T)                                                                                               \
  KERNEL(crossentropy_forward_##S, 1024, float* loss, float* lse, const T* logits, const int* targets, int vocab,        \
         u64* fault) {                                                                                                   \
    forward<T>(loss, lse, logits, targets, vocab, fault);                                                                \
  }                                                                                                                      \
  KERNEL(crossentropy_backward_##S, 1024, T* dlogits, const T* logits, const float* lse, const int* targets, int vocab, \
         float scale, u64* fault) {                                                                                      \
    backward<T>(dlogits, logits, lse, targets, vocab, scale, fault);                                                     \
  }
EACH_TYPE(CROSSENTROPY)
