// Sums of two vectors, conversions, sums over a vector and over rows. Any grid, unless said otherwise.
#include "device.h"

#include "columns.h"

// dst may be a or b.
template <class T>
DEVICE void add(T* dst, const T* a, const T* b, long n) {
  const int N = Pack<T>::N;
  bool whole_packs = whole<N>(dst) && whole<N>(a) && whole<N>(b);
  long step = (long)blocks_x() * threads() * N;
  for (long at = ((long)block_x() * threads() + thread()) * N; at < n; at += step) {
    in_packs<N>(whole_packs, n - at, [&](long left, bool fast) INLINE {
      float u[N], v[N];
      load<N>(u, a + at, left, fast);
      load<N>(v, b + at, left, fast);
      UNROLL for (int i = 0; i < N; i++) u[i] += v[i];
      store<N>(dst + at, u, left, fast);
    });
  }
}

#define ADD(S, T) \
  KERNEL(add_##S, 256, T* dst, const T* a, const T* b, long n) { add<T>(dst, a, b, n); }
EACH_TYPE(ADD)

template <class To, class From>
DEVICE void convert(To* dst, const From* src, long n) {
  bool whole_packs = whole<8>(dst) && whole<8>(src);
  long step = (long)blocks_x() * threads() * 8;
  for (long at = ((long)block_x() * threads() + thread()) * 8; at < n; at += step) {
    in_packs<8>(whole_packs, n - at, [&](long left, bool fast) INLINE {
      float v[8];
      load<8>(v, src + at, left, fast);
      store<8>(dst + at, v, left, fast);
    });
  }
}

KERNEL(convert_f32_bf16, 256, bf16* dst, const float* src, long n) { convert(dst, src, n); }
KERNEL(convert_bf16_f32, 256, float* dst, const bf16* src, long n) { convert(dst, src, n); }

// Sums of doubles in two passes whose order depends on n and chunk alone: each block
// sums chunk elements (a multiple of 4), then one block the parts. 256 threads.
DEVICE double block_sum_f64(double v, double* scratch) {
  scratch[thread()] = v;
  barrier();
  for (int half = 128; half > 0; half /= 2) {
    if (thread() < half) scratch[thread()] += scratch[thread() + half];
    barrier();
  }
  return scratch[0];
}

DEVICE void sum_part(double* parts, const float* x, long n, long chunk, bool square, double* scratch) {
  long from = block_x() * chunk, to = min_(n, from + chunk);
  bool fast = whole<4>(x);
  double s = 0;
  float v[4];
  for (long at = from + thread() * 4; at < to; at += 1024) {
    load<4>(v, x + at, to - at, fast);
    UNROLL for (int i = 0; i < 4; i++) s += square ? (double)v[i] * v[i] : (double)v[i];
  }
  s = block_sum_f64(s, scratch);
  if (thread() == 0) parts[block_x()] = s;
}

// Grid (n / chunk, rounded up).
KERNEL(sum_parts, 256, double* parts, const float* x, long n, long chunk) {
  SHARED(double, scratch, [256]);
  sum_part(parts, x, n, chunk, false, scratch);
}

KERNEL(sum_square_parts, 256, double* parts, const float* x, long n, long chunk) {
  SHARED(double, scratch, [256]);
  sum_part(parts, x, n, chunk, true, scratch);
}

// Grid (1).
KERNEL(sum_total, 256, double* out, const double* parts, int n) {
  SHARED(double, scratch, [256]);
  double s = 0;
  for (int i = thread(); i < n; i += 256) s += parts[i];
  s = block_sum_f64(s, scratch);
  if (thread() == 0) out[0] = s;
}

// dst[c] += Σ_p parts[p·stride + c], the second pass of sums over rows. Grid (columns / 32), 256 threads.
KERNEL(add_columns, 256, float* dst, const float* parts, int n, long stride, int dim) {
  SHARED(float, part, [kColumnRows][32]);
  int lane = thread() % 32, row = thread() / 32, c = block_x() * 32 + lane;
  float s = 0;
  if (c < dim) {
    UNROLL4 for (int p = row; p < n; p += kColumnRows) s += parts[p * stride + c];
  }
  part[row][lane] = s;
  barrier();
  if (row == 0 && c < dim) {
    for (int r = 1; r < kColumnRows; r++) s += part[r][lane];
    dst[c] += s;
  }
}
