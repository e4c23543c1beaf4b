// What all kernels share: element types, packs of elements, exp and log, sums over
// a warp and a block. Written for a card (gpu.h) or, with PIPETRAIN_EMULATION, the
// host's processor (../emulation).
#pragma once

#ifdef PIPETRAIN_EMULATION
#include "emulation.h"
#else
#include "gpu.h"
#endif

typedef unsigned long long u64;

// The upper half of a float.
struct bf16 {
  unsigned short bits;
};

// EACH_TYPE(X) is X(suffix of the kernel's name, element type) for both types.
#define EACH_TYPE(X) X(f32, float) X(bf16, bf16)

const float kInfinity = __builtin_inff();
const float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

DEVICE float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float max_(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float sqrt_(float x) { return __builtin_sqrtf(x); }
DEVICE long min_(long a, long b) { return a < b ? a : b; }

DEVICE float get(float v) { return v; }
DEVICE float get(bf16 v) { return as_float((unsigned)v.bits << 16); }
DEVICE void put(float* p, float v) { *p = v; }
DEVICE void put(bf16* p, float v) { p->bits = (unsigned short)round_bf16x2(v, 0); }
DEVICE float low_half(unsigned w) { return as_float(w << 16); }
DEVICE float high_half(unsigned w) { return as_float(w & 0xffff0000); }

// The elements of T in 16 bytes, what a thread reads at once.
template <class T>
struct Pack {
  static const int N = 16 / sizeof(T);
};

// Whether packs of N elements may be read and written at p at once. The values that a
// kernel computes, and the order of its sums, must not depend on it.
template <int N, class T>
DEVICE bool whole(const T* p) {
  return (u64)p % (N * sizeof(T) < 16 ? N * sizeof(T) : 16) == 0;
}

// in_packs calls body(left, fast) for N elements, of which left exist. The compiler makes two of
// it: with fast all loads are whole packs and start at once, rather than one after the other's branch.
template <int N, class F>
DEVICE void in_packs(bool fast, long left, F body) {
  if (fast && left >= N) {
    body((long)N, true);
  } else {
    body(left, false);
  }
}

// load reads N elements at p, of which left exist; the others count as 0. fast: whole(p).
template <int N>
DEVICE void load(float* v, const float* p, long left, bool fast) {
  if (fast && left >= N) {
    UNROLL for (int i = 0; i < N; i += 4) {
      Words4 w = load16(p + i);
      UNROLL for (int j = 0; j < 4; j++) v[i + j] = as_float(w.v[j]);
    }
    return;
  }
  UNROLL for (int i = 0; i < N; i++) v[i] = i < left ? p[i] : 0;
}

template <int N>
DEVICE void load(float* v, const bf16* p, long left, bool fast) {
  if (fast && left >= N) {
    if (N == 4) {
      Words2 w = load8(p);
      UNROLL for (int j = 0; j < 2; j++) v[2 * j] = low_half(w.v[j]), v[2 * j + 1] = high_half(w.v[j]);
      return;
    }
    UNROLL for (int i = 0; i + 8 <= N; i += 8) {
      Words4 w = load16(p + i);
      UNROLL for (int j = 0; j < 4; j++) v[i + 2 * j] = low_half(w.v[j]), v[i + 2 * j + 1] = high_half(w.v[j]);
    }
    return;
  }
  UNROLL for (int i = 0; i < N; i++) v[i] = i < left ? get(p[i]) : 0;
}

DEVICE unsigned bits_of(float f) { return __builtin_bit_cast(unsigned, f); }

template <int N>
DEVICE void store(float* p, const float* v, long left, bool fast) {
  if (fast && left >= N) {
    UNROLL for (int i = 0; i < N; i += 4)
      store16(p + i, Words4{{bits_of(v[i]), bits_of(v[i + 1]), bits_of(v[i + 2]), bits_of(v[i + 3])}});
    return;
  }
  UNROLL for (int i = 0; i < N; i++)
    if (i < left) p[i] = v[i];
}

template <int N>
DEVICE void store(bf16* p, const float* v, long left, bool fast) {
  if (fast && left >= N) {
    if (N == 4) {
      store8(p, Words2{{round_bf16x2(v[0], v[1]), round_bf16x2(v[2], v[3])}});
      return;
    }
    UNROLL for (int i = 0; i + 8 <= N; i += 8)
      store16(p + i, Words4{{round_bf16x2(v[i], v[i + 1]), round_bf16x2(v[i + 2], v[i + 3]), round_bf16x2(v[i + 4], v[i + 5]),
                             round_bf16x2(v[i + 6], v[i + 7])}});
    return;
  }
  UNROLL for (int i = 0; i < N; i++)
    if (i < left) put(p + i, v[i]);
}

// e^x, wrong by up to |x|·1e-7 + 3e-7 of itself, 0 where it would be denormal. A softmax loses
// nothing: its large terms have small |x|.
DEVICE float exp_(float x) { return exp2_approx(x * kLog2E); }

DEVICE float log_(float x) { return log2_approx(x) * kLn2; }

// 1 / (1 + e^-x), as exact as exp_.
DEVICE float sigmoid(float x) { return reciprocal_approx(1 + exp_(-x)); }

DEVICE float warp_sum(float v) {
  for (int m = 16; m > 0; m /= 2) v += shuffle_xor(v, m);
  return v;
}

DEVICE float warp_max(float v) {
  for (int m = 16; m > 0; m /= 2) v = max_(v, shuffle_xor(v, m));
  return v;
}

// The sum of v over the block, the same in all threads; threads is a multiple of
// 32, scratch has 32 places. The order of the sum depends on threads alone.
DEVICE float block_sum(float v, float* scratch) {
  v = warp_sum(v);
  if (thread() % 32 == 0) scratch[thread() / 32] = v;
  barrier();
  v = warp_sum(thread() % 32 < threads() / 32 ? scratch[thread() % 32] : 0);
  barrier();  // scratch may be used again
  return v;
}

DEVICE float block_max(float v, float* scratch) {
  v = warp_max(v);
  if (thread() % 32 == 0) scratch[thread() / 32] = v;
  barrier();
  v = warp_max(thread() % 32 < threads() / 32 ? scratch[thread() % 32] : -kInfinity);
  barrier();  // scratch may be used again
  return v;
}

// Notes in *fault that row i has the id, which is not in [0, n): row in the upper
// half, id in the lower. The first such row counts; all bits set mean none.
DEVICE bool id_outside(int id, int n, int i, u64* fault) {
  if (id >= 0 && id < n) return false;
  if (thread() == 0) atomic_min(fault, (u64)(unsigned)i << 32 | (unsigned)id);
  return true;
}
