// Causal grouped-query attention of bf16 on tensor cores (arXiv 2307.08691): the softmax runs
// along with the products, scores stay in registers, and the next tile is on its way
// while one is worked on. 128 threads; a warp has 16 of a block's 64 rows.
//
// In the registers of a product lane l has rows l/4 and l/4 + 8, columns 8·j + 2·(l%4) and the next.
#include "attention.h"
#include "fragment.h"

const int kRows = 64;

// Shared memory: 4 tiles of 64 rows.
template <int D>
DEVICE void forward(bf16* o, float* lse, const bf16* qkv, Shape z, bf16* shared) {
  const int size = kRows * Rows<D>::stride;
  bf16 *keys = shared, *values = shared + 2 * size;  // two of each, used in turn
  Place at = query_place(z, kRows);
  const bf16* from = qkv + at.row0 * at.ld;
  bool fast = pieces(from, at.ld, z.width);
  int q0 = at.tile * kRows, lane = thread() % 32, row = thread() / 32 * 16, w = z.width;
  // The queries pass through what is the second tile of keys later.
  begin_load<D, kRows>(keys + size, from + at.query, at.ld, q0, z.seq, w, fast);
  cp_async_commit();
  begin_load<D, kRows>(keys, from + at.key, at.ld, 0, z.seq, w, fast);
  cp_async_commit();
  begin_load<D, kRows>(values, from + at.value, at.ld, 0, z.seq, w, fast);
  cp_async_commit();
  cp_async_wait<2>();
  barrier();  // the queries are there
  unsigned q[D / 16][4];
  UNROLL for (int k = 0; k < D / 16; k++) left_part<D>(q[k], keys + size, row, 16 * k);

  float acc[D / 8][4], top[2] = {-kInfinity, -kInfinity}, sum[2] = {0, 0};
  UNROLL for (int j = 0; j < D / 8; j++)
    UNROLL for (int e = 0; e < 4; e++) acc[j][e] = 0;
  float c = z.scale * kLog2E;
  const bf16 *next_key = from + at.key, *next_value = from + at.value;
  for (int i = 0; i <= at.tile; i++) {
    bf16 *k = keys + i % 2 * size, *v = values + i % 2 * size;
    int next = (i + 1) % 2 * size, left = z.seq - (i + 1) * kRows;
    next_key += kRows * at.ld, next_value += kRows * at.ld;
    cp_async_wait<1>();
    barrier();  // the keys are there, the other tile of keys is read no more
    if (i < at.tile) begin_load<D, kRows>(keys + next, next_key, at.ld, 0, left, w, fast);
    cp_async_commit();
    float s[kRows / 8][4];
    UNROLL for (int j = 0; j < kRows / 8; j++)
      UNROLL for (int e = 0; e < 4; e++) s[j][e] = 0;
    UNROLL for (int d = 0; d < D / 16; d++)
      UNROLL for (int j = 0; j < kRows; j += 16) {
        unsigned b[4];
        right_rows<D>(b, k, j, 16 * d);
        mma_bf16(s[j / 8], q[d], b);
        mma_bf16(s[j / 8 + 1], q[d], b + 2);
      }
    if (i == at.tile) {  // only the last tile has keys after a query
      UNROLL for (int j = 0; j < kRows / 8; j++)
        UNROLL for (int e = 0; e < 4; e++)
          if (8 * j + lane % 4 * 2 + e % 2 > row + lane / 4 + e / 2 * 8) s[j][e] = -kInfinity;
    }
    UNROLL for (int half = 0; half < 2; half++) {
      float m = top[half];
      UNROLL for (int j = 0; j < kRows / 8; j++) m = max_(m, max_(s[j][2 * half], s[j][2 * half + 1]));
      m = max_(m, shuffle_xor(m, 1));
      m = max_(m, shuffle_xor(m, 2));
      float shrink = exp2_approx((top[half] - m) * c);
      top[half] = m;
      sum[half] *= shrink;
      UNROLL for (int j = 0; j < kRows / 8; j++)
        UNROLL for (int e = 0; e < 2; e++) {
          float* x = &s[j][2 * half + e];
          *x = exp2_approx(fma_(*x, c, -m * c));
          sum[half] += *x;
        }
      UNROLL for (int j = 0; j < D / 8; j++) acc[j][2 * half] *= shrink, acc[j][2 * half + 1] *= shrink;
    }
    cp_async_wait<1>();
    barrier();  // the values are there, the other tile of values is read no more
    if (i < at.tile) begin_load<D, kRows>(values + next, next_value, at.ld, 0, left, w, fast);
    cp_async_commit();
    add_product<D, kRows>(acc, s, v);
  }
  UNROLL for (int half = 0; half < 2; half++) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    int r = q0 + row + lane / 4 + 8 * half;
    if (lane % 4 == 0 && r < z.seq) lse[(at.row0 + r) * z.heads + at.head] = (top[half] * c + log2_approx(sum[half])) * kLn2;
  }
  // No warp reads keys after the last barrier.
  put_part<D>(o + at.row0 * at.ldo + at.query, at.ldo, q0, z.seq, w, acc, 1 / sum[0], 1 / sum[1], keys, row);
}

// dk and dv of 64 keys, from B queries at a time of each query head that reads them, one head after
// the other: a fixed order, and no atomic additions. Products are of keys by queries.
// Shared memory: 2 tiles of 64 rows, 4 of B rows, 4·B floats.
template <int D, int B>
DEVICE void backward_keys(bf16* dqkv, const bf16* dout, const float* lse, const float* delta, const bf16* qkv, Shape z, bf16* shared) {
  const int size = kRows * Rows<D>::stride, part = B * Rows<D>::stride;
  bf16 *k = shared, *v = k + size, *queries = v + size, *outs = queries + 2 * part;
  float *lses = (float*)(outs + 2 * part), *deltas = lses + 2 * B;
  Place at = key_place(z, kRows);
  const bf16 *from = qkv + at.row0 * at.ld, *dfrom = dout + at.row0 * at.ldo;
  bool fast = pieces(from, at.ld, z.width), dfast = pieces(dfrom, at.ldo, z.width);
  int k0 = at.tile * kRows, lane = thread() % 32, row = thread() / 32 * 16, w = z.width;
  int per_head = (z.seq - k0 + B - 1) / B, steps = per_head * (z.heads / z.kv_heads);
  begin_load<D, kRows>(k, from + at.key, at.ld, k0, z.seq, w, fast);
  begin_load<D, kRows>(v, from + at.value, at.ld, k0, z.seq, w, fast);
  float dk[D / 8][4], dv[D / 8][4], c = z.scale * kLog2E;
  UNROLL for (int j = 0; j < D / 8; j++)
    UNROLL for (int e = 0; e < 4; e++) dk[j][e] = dv[j][e] = 0;
  for (int i = -1; i < steps; i++) {
    if (i + 1 < steps) {
      int to = (i + 1) % 2, h = at.head + (i + 1) / per_head, q0 = k0 + (i + 1) % per_head * B;
      begin_load<D, B>(queries + to * part, from + (long)h * w, at.ld, q0, z.seq, w, fast);
      begin_load<D, B>(outs + to * part, dfrom + (long)h * w, at.ldo, q0, z.seq, w, dfast);
      begin_load_column<B>(lses + to * B, lse + at.row0 * z.heads + h, z.heads, q0, z.seq);
      begin_load_column<B>(deltas + to * B, delta + at.row0 * z.heads + h, z.heads, q0, z.seq);
    }
    cp_async_commit();
    if (i < 0) continue;
    cp_async_wait<1>();
    barrier();  // the tiles of this step are there
    bf16 *q = queries + i % 2 * part, *d = outs + i % 2 * part;
    float *e0 = lses + i % 2 * B, *d0 = deltas + i % 2 * B, p[B / 8][4], ds[B / 8][4];
    int q0 = k0 + i % per_head * B;
    product_of_rows<D, B>(p, k, row, q);
    product_of_rows<D, B>(ds, v, row, d);
    UNROLL for (int j = 0; j < B / 8; j++)
      UNROLL for (int e = 0; e < 4; e++) {
        int column = 8 * j + lane % 4 * 2 + e % 2;
        p[j][e] = exp2_approx(fma_(p[j][e], c, -e0[column] * kLog2E));
      }
    if (q0 < k0 + kRows || q0 + B > z.seq) {  // queries before a key, or none
      UNROLL for (int j = 0; j < B / 8; j++)
        UNROLL for (int e = 0; e < 4; e++) {
          int query = q0 + 8 * j + lane % 4 * 2 + e % 2;
          if (query < k0 + row + lane / 4 + e / 2 * 8 || query >= z.seq) p[j][e] = 0;
        }
    }
    UNROLL for (int j = 0; j < B / 8; j++)
      UNROLL for (int e = 0; e < 4; e++) ds[j][e] = p[j][e] * (ds[j][e] - d0[8 * j + lane % 4 * 2 + e % 2]);
    add_product<D, B>(dv, p, d);
    add_product<D, B>(dk, ds, q);
    barrier();  // they are read no more
  }
  bf16* to = dqkv + at.row0 * at.ld;
  put_part<D>(to + at.key, at.ld, k0, z.seq, w, dk, z.scale, z.scale, k, row);
  put_part<D>(to + at.value, at.ld, k0, z.seq, w, dv, 1, 1, v, row);
}

// dq of 64 queries, from B keys at a time. Shared memory: 2 tiles of 64 rows, 4 of B rows.
template <int D, int B>
DEVICE void backward_queries(bf16* dqkv, const bf16* dout, const float* lse, const float* delta, const bf16* qkv, Shape z,
                             bf16* shared) {
  const int size = kRows * Rows<D>::stride, part = B * Rows<D>::stride;
  bf16 *q = shared, *d = q + size, *keys = d + size, *values = keys + 2 * part;
  Place at = query_place(z, kRows);
  const bf16 *from = qkv + at.row0 * at.ld, *dfrom = dout + at.row0 * at.ldo;
  bool fast = pieces(from, at.ld, z.width), dfast = pieces(dfrom, at.ldo, z.width);
  int q0 = at.tile * kRows, lane = thread() % 32, row = thread() / 32 * 16, w = z.width;
  int steps = (int)(min_(z.seq, q0 + kRows) + B - 1) / B;
  begin_load<D, kRows>(q, from + at.query, at.ld, q0, z.seq, w, fast);
  begin_load<D, kRows>(d, dfrom + at.query, at.ldo, q0, z.seq, w, dfast);
  float dq[D / 8][4], e0[2], d0[2], c = z.scale * kLog2E;
  UNROLL for (int j = 0; j < D / 8; j++)
    UNROLL for (int e = 0; e < 4; e++) dq[j][e] = 0;
  UNROLL for (int half = 0; half < 2; half++) {
    int r = q0 + row + lane / 4 + 8 * half;
    long p = (at.row0 + r) * z.heads + at.head;
    e0[half] = r < z.seq ? lse[p] * kLog2E : 0;
    d0[half] = r < z.seq ? delta[p] : 0;
  }
  for (int i = -1; i < steps; i++) {
    if (i + 1 < steps) {
      int to = (i + 1) % 2 * part;
      begin_load<D, B>(keys + to, from + at.key, at.ld, (i + 1) * B, z.seq, w, fast);
      begin_load<D, B>(values + to, from + at.value, at.ld, (i + 1) * B, z.seq, w, fast);
    }
    cp_async_commit();
    if (i < 0) continue;
    cp_async_wait<1>();
    barrier();  // the tiles of this step are there
    bf16 *k = keys + i % 2 * part, *v = values + i % 2 * part;
    float p[B / 8][4], ds[B / 8][4];
    int k0 = i * B;
    product_of_rows<D, B>(p, q, row, k);
    product_of_rows<D, B>(ds, d, row, v);
    UNROLL for (int j = 0; j < B / 8; j++)
      UNROLL for (int e = 0; e < 4; e++) {
        // A query that does not exist gives zeros, as do's row of it is.
        ds[j][e] = exp2_approx(fma_(p[j][e], c, -e0[e / 2])) * (ds[j][e] - d0[e / 2]);
      }
    if (k0 + B > q0) {  // keys after a query
      UNROLL for (int j = 0; j < B / 8; j++)
        UNROLL for (int e = 0; e < 4; e++)
          if (k0 + 8 * j + lane % 4 * 2 + e % 2 > q0 + row + lane / 4 + e / 2 * 8) ds[j][e] = 0;
    }
    add_product<D, B>(dq, ds, k);
    barrier();  // they are read no more
  }
  put_part<D>(dqkv + at.row0 * at.ld + at.query, at.ld, q0, z.seq, w, dq, z.scale, z.scale, q, row);
}

#define ATTENTION(D, B, F, K, Q)                                                                                             \
  KERNEL_SHARING(attention_forward_bf16_##D, 128, F, bf16* o, float* lse, const bf16* qkv, int seq, int heads, int kv_heads, \
                 int width, float scale) {                                                                                   \
    DYNAMIC_SHARED(bf16, shared);                                                                                            \
    forward<D>(o, lse, qkv, Shape{seq, heads, kv_heads, width, scale}, shared);                                              \
  }                                                                                                                          \
  KERNEL_SHARING(attention_keys_bf16_##D, 128, K, bf16* dqkv, const bf16* dout, const float* lse, const float* delta,        \
                 const bf16* qkv, int seq, int heads, int kv_heads, int width, float scale) {                                \
    DYNAMIC_SHARED(bf16, shared);                                                                                            \
    backward_keys<D, B>(dqkv, dout, lse, delta, qkv, Shape{seq, heads, kv_heads, width, scale}, shared);                     \
  }                                                                                                                          \
  KERNEL_SHARING(attention_queries_bf16_##D, 128, Q, bf16* dqkv, const bf16* dout, const float* lse, const float* delta,     \
                 const bf16* qkv, int seq, int heads, int kv_heads, int width, float scale) {                                \
    DYNAMIC_SHARED(bf16, shared);                                                                                            \
    backward_queries<D, B>(dqkv, dout, lse, delta, qkv, Shape{seq, heads, kv_heads, width, scale}, shared);                  \
  }

// Head width, rows of the tiles that pass by in the backward kernels: as many as 99 KiB of shared memory
// allow; and blocks that share a multiprocessor: as many as registers allow without a spill.
ATTENTION(32, 64, 4, 3, 4)
ATTENTION(64, 64, 4, 2, 3)
ATTENTION(128, 32, 3, 2, 3)
