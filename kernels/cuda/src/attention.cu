// Causal grouped-query attention without the matrix of scores (arXiv 2205.14135), in
// fp32 arithmetic: tiles of B rows and D ≥ HeadDim columns in shared memory, 256 threads.
// Of a B × B tile thread (ty, tx) has rows ty + 16·i and columns tx + 16·j, of a
// B × D tile likewise. Rows of a tile lie D + 1 or B + 1 words apart.
#include "attention.h"

// load_tile copies rows [r0, r0 + B) of width w into a tile; what does not exist is 0.
template <int D, int B, class T>
DEVICE void load_tile(float* tile, const T* from, long ld, int r0, int seq, int w) {
  for (int e = thread(); e < B * D; e += 256) {
    int r = e / D, c = e % D;
    tile[r * (D + 1) + c] = r0 + r < seq && c < w ? get(from[(r0 + r) * ld + c]) : 0;
  }
}

// times_rows is s = x·yᵀ, both B × D.
template <int D, int B>
DEVICE void times_rows(float (*s)[B / 16], const float* x, const float* y) {
  const int R = B / 16;
  int tx = thread() % 16, ty = thread() / 16;
  UNROLL for (int i = 0; i < R; i++)
    UNROLL for (int j = 0; j < R; j++) s[i][j] = 0;
  UNROLL4 for (int d = 0; d < D; d++) {
    float a[R], b[R];
    UNROLL for (int i = 0; i < R; i++) a[i] = x[(ty + 16 * i) * (D + 1) + d];
    UNROLL for (int j = 0; j < R; j++) b[j] = y[(tx + 16 * j) * (D + 1) + d];
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int j = 0; j < R; j++) s[i][j] = fma_(a[i], b[j], s[i][j]);
  }
}

// times is acc += p·y, or pᵀ·y when across; p is B × B, y B × D.
template <int D, int B>
DEVICE void times(float (*acc)[D / 16], const float* p, const float* y, bool across) {
  const int R = B / 16, C = D / 16;
  int tx = thread() % 16, ty = thread() / 16;
  UNROLL2 for (int k = 0; k < B; k++) {
    float a[R], b[C];
    UNROLL for (int i = 0; i < R; i++) a[i] = across ? p[k * (B + 1) + ty + 16 * i] : p[(ty + 16 * i) * (B + 1) + k];
    UNROLL for (int j = 0; j < C; j++) b[j] = y[k * (D + 1) + tx + 16 * j];
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int j = 0; j < C; j++) acc[i][j] = fma_(a[i], b[j], acc[i][j]);
  }
}

// put_tile writes a B × D accumulator to rows [r0, r0 + B) of a matrix.
template <int D, int B, class T>
DEVICE void put_tile(T* to, long ld, int r0, int seq, int w, float (*acc)[D / 16]) {
  int tx = thread() % 16, ty = thread() / 16;
  UNROLL for (int i = 0; i < B / 16; i++)
    UNROLL for (int j = 0; j < D / 16; j++) {
      int r = r0 + ty + 16 * i, c = tx + 16 * j;
      if (r < seq && c < w) put(to + r * ld + c, acc[i][j]);
    }
}

// Shared memory: (2·B·(D+1) + B·(B+1)) floats.
template <int D, int B, class T>
DEVICE void forward(T* o, float* lse, const T* qkv, Shape z, float* shared) {
  const int R = B / 16, C = D / 16;
  float *q = shared, *kv = q + B * (D + 1), *p = kv + B * (D + 1);
  Place at = query_place(z, B);
  const T* from = qkv + at.row0 * at.ld;
  int tx = thread() % 16, ty = thread() / 16, q0 = at.tile * B;
  float acc[R][C], top[R], sum[R];
  UNROLL for (int i = 0; i < R; i++) {
    top[i] = -kInfinity, sum[i] = 0;
    UNROLL for (int j = 0; j < C; j++) acc[i][j] = 0;
  }
  load_tile<D, B>(q, from + at.query, at.ld, q0, z.seq, z.width);
  for (int k0 = 0; k0 <= q0; k0 += B) {
    load_tile<D, B>(kv, from + at.key, at.ld, k0, z.seq, z.width);
    barrier();  // queries and keys are there
    float s[R][R];
    times_rows<D, B>(s, q, kv);
    UNROLL for (int i = 0; i < R; i++) {
      int row = q0 + ty + 16 * i;
      float m = top[i], t = 0;
      UNROLL for (int j = 0; j < R; j++) {
        s[i][j] = k0 + tx + 16 * j <= row ? s[i][j] * z.scale : -kInfinity;
        m = max_(m, s[i][j]);
      }
      for (int x = 8; x > 0; x /= 2) m = max_(m, shuffle_xor(m, x));
      UNROLL for (int j = 0; j < R; j++) {
        float e = exp_(s[i][j] - m);
        p[(ty + 16 * i) * (B + 1) + tx + 16 * j] = e;
        t += e;
      }
      for (int x = 8; x > 0; x /= 2) t += shuffle_xor(t, x);
      float shrink = exp_(top[i] - m);
      top[i] = m;
      sum[i] = sum[i] * shrink + t;
      UNROLL for (int j = 0; j < C; j++) acc[i][j] *= shrink;
    }
    barrier();  // the keys are read no more
    load_tile<D, B>(kv, from + at.value, at.ld, k0, z.seq, z.width);
    barrier();  // values and probabilities are there
    times<D, B>(acc, p, kv, false);
    barrier();  // neither is read any more
  }
  UNROLL for (int i = 0; i < R; i++) {
    int row = q0 + ty + 16 * i;
    if (tx == 0 && row < z.seq) lse[(at.row0 + row) * z.heads + at.head] = top[i] + log_(sum[i]);
    UNROLL for (int j = 0; j < C; j++) acc[i][j] /= sum[i];
  }
  put_tile<D, B>(o + at.row0 * at.ldo + at.query, at.ldo, q0, z.seq, z.width, acc);
}

// grads computes a tile of probabilities again and its gradient before the softmax:
// ds = p·(do·vᵀ - delta)·scale. p may be null.
template <int D, int B>
DEVICE void grads(float* p, float* ds, const float* q, const float* dout, const float* k, const float* v, const float* lse,
                  const float* delta, int q0, int k0, Shape z) {
  const int R = B / 16;
  int tx = thread() % 16, ty = thread() / 16;
  float s[R][R], dp[R][R];
  times_rows<D, B>(s, q, k);
  times_rows<D, B>(dp, dout, v);
  UNROLL for (int i = 0; i < R; i++) {
    int row = q0 + ty + 16 * i;
    bool exists = row < z.seq;
    float e = exists ? lse[(long)row * z.heads] : 0, dl = exists ? delta[(long)row * z.heads] : 0;
    UNROLL for (int j = 0; j < R; j++) {
      int at = (ty + 16 * i) * (B + 1) + tx + 16 * j;
      float x = exists && k0 + tx + 16 * j <= row ? exp_(s[i][j] * z.scale - e) : 0;
      if (p) p[at] = x;
      ds[at] = x * (dp[i][j] - dl) * z.scale;
    }
  }
}

// dk and dv of one tile of keys. All query heads of the key head add to them, one after
// the other: a fixed order, and no atomic additions. Shared memory: (4·B·(D+1) + 2·B·(B+1)) floats.
template <int D, int B, class T>
DEVICE void backward_keys(T* dqkv, const T* dout, const float* lse, const float* delta, const T* qkv, Shape z, float* shared) {
  const int R = B / 16, C = D / 16, size = B * (D + 1);
  float *k = shared, *v = k + size, *q = v + size, *d = q + size, *p = d + size, *ds = p + B * (B + 1);
  Place at = key_place(z, B);
  const T* from = qkv + at.row0 * at.ld;
  int k0 = at.tile * B, w = z.width;
  float dk[R][C], dv[R][C];
  UNROLL for (int i = 0; i < R; i++)
    UNROLL for (int j = 0; j < C; j++) dk[i][j] = dv[i][j] = 0;
  load_tile<D, B>(k, from + at.key, at.ld, k0, z.seq, w);
  load_tile<D, B>(v, from + at.value, at.ld, k0, z.seq, w);
  for (int h = at.head; h < at.head + z.heads / z.kv_heads; h++) {
    for (int q0 = k0; q0 < z.seq; q0 += B) {
      load_tile<D, B>(q, from + h * w, at.ld, q0, z.seq, w);
      load_tile<D, B>(d, dout + at.row0 * at.ldo + h * w, at.ldo, q0, z.seq, w);
      barrier();  // the tiles are there
      grads<D, B>(p, ds, q, d, k, v, lse + at.row0 * z.heads + h, delta + at.row0 * z.heads + h, q0, k0, z);
      barrier();  // probabilities and their gradients are there
      times<D, B>(dv, p, d, true);
      times<D, B>(dk, ds, q, true);
      barrier();  // queries, probabilities and their gradients are read no more
    }
  }
  put_tile<D, B>(dqkv + at.row0 * at.ld + at.key, at.ld, k0, z.seq, w, dk);
  put_tile<D, B>(dqkv + at.row0 * at.ld + at.value, at.ld, k0, z.seq, w, dv);
}

// dq of one tile of queries. Shared memory: (4·B·(D+1) + B·(B+1)) floats.
template <int D, int B, class T>
DEVICE void backward_queries(T* dqkv, const T* dout, const float* lse, const float* delta, const T* qkv, Shape z, float* shared) {
  const int R = B / 16, C = D / 16, size = B * (D + 1);
  float *k = shared, *v = k + size, *q = v + size, *d = q + size, *ds = d + size;
  Place at = query_place(z, B);
  const T* from = qkv + at.row0 * at.ld;
  int q0 = at.tile * B, w = z.width;
  float dq[R][C];
  UNROLL for (int i = 0; i < R; i++)
    UNROLL for (int j = 0; j < C; j++) dq[i][j] = 0;
  load_tile<D, B>(q, from + at.query, at.ld, q0, z.seq, w);
  load_tile<D, B>(d, dout + at.row0 * at.ldo + at.query, at.ldo, q0, z.seq, w);
  for (int k0 = 0; k0 <= q0; k0 += B) {
    load_tile<D, B>(k, from + at.key, at.ld, k0, z.seq, w);
    load_tile<D, B>(v, from + at.value, at.ld, k0, z.seq, w);
    barrier();  // the tiles are there
    grads<D, B>((float*)0, ds, q, d, k, v, lse + at.row0 * z.heads + at.head, delta + at.row0 * z.heads + at.head, q0, k0, z);
    barrier();  // the gradients are there
    times<D, B>(dq, ds, k, false);
    barrier();  // keys and gradients are read no more
  }
  put_tile<D, B>(dqkv + at.row0 * at.ld + at.query, at.ld, q0, z.seq, w, dq);
}

// delta[i] = do[i]·o[i] for each row and head, n of them: a warp each, grid (n / 8), 256 threads.
template <class T>
DEVICE void dot(float* delta, const T* dout, const T* o, int n, int width) {
  int i = block_x() * 8 + thread() / 32;
  float s = 0;
  if (i < n)
    for (int c = thread() % 32; c < width; c += 32) s = fma_(get(dout[(long)i * width + c]), get(o[(long)i * width + c]), s);
  s = warp_sum(s);
  if (i < n && thread() % 32 == 0) delta[i] = s;
}

KERNEL(attention_delta_f32, 256, float* delta, const float* dout, const float* o, int n, int width) {
  dot<float>(delta, dout, o, n, width);
}
KERNEL(attention_delta_bf16, 256, float* delta, const bf16* dout, const bf16* o, int n, int width) {
  dot<bf16>(delta, dout, o, n, width);
}

// Each 256 threads; dynamic shared memory as said above. forward: grid of tiles of FB queries, keys: of
// BB keys of the key heads, queries: of BB queries. The backward kernels write other columns of dqkv.
#define ATTENTION(S, T, D, FB, BB)                                                                                         \
  KERNEL(attention_forward_##S, 256, T* o, float* lse, const T* qkv, int seq, int heads, int kv_heads, int width, float scale) { \
    DYNAMIC_SHARED(float, shared);                                                                                         \
    forward<D, FB>(o, lse, qkv, Shape{seq, heads, kv_heads, width, scale}, shared);                                        \
  }                                                                                                                        \
  KERNEL(attention_keys_##S, 256, T* dqkv, const T* dout, const float* lse, const float* delta, const T* qkv, int seq,     \
         int heads, int kv_heads, int width, float scale) {                                                                \
    DYNAMIC_SHARED(float, shared);                                                                                         \
    backward_keys<D, BB>(dqkv, dout, lse, delta, qkv, Shape{seq, heads, kv_heads, width, scale}, shared);                  \
  }                                                                                                                        \
  KERNEL(attention_queries_##S, 256, T* dqkv, const T* dout, const float* lse, const float* delta, const T* qkv, int seq,  \
         int heads, int kv_heads, int width, float scale) {                                                                \
    DYNAMIC_SHARED(float, shared);                                                                                         \
    backward_queries<D, BB>(dqkv, dout, lse, delta, qkv, Shape{seq, heads, kv_heads, width, scale}, shared);               \
  }

// Head width, rows of a forward and of a backward tile: as many as fit in the 99 KiB of
// shared memory that every card since Ampere gives a block. Narrower bf16 heads have tensor cores (attention_mma.cu).
ATTENTION(f32_32, float, 32, 64, 64)
ATTENTION(f32_64, float, 64, 64, 64)
ATTENTION(f32_128, float, 128, 64, 32)
ATTENTION(f32_256, float, 256, 32, 16)
ATTENTION(bf16_256, bf16, 256, 32, 16)
