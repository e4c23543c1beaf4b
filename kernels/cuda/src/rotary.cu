// Rotary position embedding (arXiv 2104.09864, rotate-half order), in place.
#include "device.h"

// Grid (rows). cosines and sines are seq × half, for the angle of position p and
// pair j p·theta^(-j/half); sign -1 turns back.
template <class T>
DEVICE void turn(T* x, const float* cosines, const float* sines, int seq, int heads, int half, long ld, float sign) {
  const int N = Pack<T>::N;
  T* row = x + block_x() * ld;
  cosines += (long)(block_x() % seq) * half;
  sines += (long)(block_x() % seq) * half;
  bool whole_packs = whole<N>(row) && half % N == 0 && whole<N>(cosines) && whole<N>(sines);
  int packs = (half + N - 1) / N;
  for (int e = thread(); e < heads * packs; e += threads()) {
    int j = e % packs * N;
    T* p = row + e / packs * 2 * half + j;
    in_packs<N>(whole_packs, half - j, [&](long left, bool fast) INLINE {
      float a[N], b[N], c[N], s[N], r[N];
      load<N>(a, p, left, fast);
      load<N>(b, p + half, left, fast);
      load<N>(c, cosines + j, left, fast);
      load<N>(s, sines + j, left, fast);
      UNROLL for (int i = 0; i < N; i++) {
        float y = sign * s[i];
        r[i] = fma_(a[i], c[i], -(b[i] * y));
        b[i] = fma_(b[i], c[i], a[i] * y);
      }
      store<N>(p, r, left, fast);
      store<N>(p + half, b, left, fast);
    });
  }
}

#define ROTARY(S, T)                                                                                                     \
  KERNEL(rotary_##S, 256, T* x, const float* cosines, const float* sines, int seq, int heads, int half, long ld, float sign) { \
    turn<T>(x, cosines, sines, seq, heads, half, ld, sign);                                                              \
  }
EACH_TYPE(ROTARY)
