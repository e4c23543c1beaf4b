// Rotary position embedding (arXiv 2104.09864, rotate-half order), in place.
#include "device.h"

// Grid (rows). cosines and sines are seq × half, for the angle of position p and
// pair j p·theta^(-j/half); sign -1 turns back.
template <class T>
DEVICE void turn(T* x, const float* cosines, const float* sines, int seq, int heads, int half, long ld, float sign) {
  T* row = x + block_x() * ld;
  long at = (long)(block_x() % seq) * half;
  for (int e = thread(); e < heads * half; e += threads()) {
    int h = e / half, j = e % half;
    float c = cosines[at + j], s = sign * sines[at + j];
    T* p = row + h * 2 * half + j;
    float a = get(p[0]), b = get(p[half]);
    put(p, fma_(a, c, -(b * s)));
    put(p + half, fma_(b, c, a * s));
  }
}

#define ROTARY(S, T)                                                                                                     \
  KERNEL(rotary_##S, 256, T* x, const float* cosines, const float* sines, int seq, int heads, int half, long ld, float sign) { \
    turn<T>(x, cosines, sines, seq, heads, half, ld, sign);                                                              \
  }
EACH_TYPE(ROTARY)
