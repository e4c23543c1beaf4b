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
  bool whole_packs = whole<N>(x);
  float top = -kInfinity, s = 0, v[N];
  for (int c = thread() * N; c < vocab; c += threads() * N) {
    in_packs<N>(whole_packs, vocab - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      float m = top;
      UNROLL for (int i = 0; i < N; i++) m = max_(m, i < left ? v[i] : -kInfinity);
      if (m == -kInfinity) return;
      s *= exp_(top - m);
      top = m;
      UNROLL for (int i = 0; i < N; i++) s += i < left ? exp_(v[i] - m) : 0;
    });
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
  bool whole_packs = whole<N>(x) && whole<N>(d);
  float e = lse[block_x()], v[N];
  for (int c = thread() * N; c < vocab; c += threads() * N) {
    in_packs<N>(whole_packs, vocab - c, [&](long left, bool fast) INLINE {
      load<N>(v, x + c, left, fast);
      UNROLL for (int i = 0; i < N; i++) v[i] = (exp_(v[i] - e) - (c + i == target ? 1.0f : 0.0f)) * scale;
      store<N>(d + c, v, left, fast);
    });
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
