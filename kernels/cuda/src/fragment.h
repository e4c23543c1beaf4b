// Tiles of bf16 in shared memory and their parts in the registers of a warp, as the
// tensor cores take them (gpu.h, mma_bf16). A block is four warps. Rows of a tile lie D + 8
// elements apart: then the eight rows of a matrix that ldmatrix reads lie in different banks.
#pragma once
#include "device.h"

const int kWarps = 4;  // of a block

template <int D>
struct Rows {
  static const int stride = D + 8;
};

// Whether rows of width w at p, ld apart, are whole 16-byte pieces.
DEVICE bool pieces(const bf16* p, long ld, int w) { return whole<8>(p) && ld % 8 == 0 && w % 8 == 0; }

// begin_load brings rows [r0, r0 + B) of width w; what does not exist is 0. They are there for the
// thread after cp_async_wait, for the block after a barrier.
template <int D, int B>
DEVICE void begin_load(bf16* tile, const bf16* from, long ld, int r0, int seq, int w, bool fast) {
  const int chunks = D / 8, step = kWarps * 32 / chunks;  // a thread has each step-th row, of one column
  int r = thread() / chunks, c = thread() % chunks * 8;
  const bf16* p = from + (r0 + r) * ld + c;
  bf16* to = tile + r * Rows<D>::stride + c;
  int left = c < w ? seq - r0 - r : 0;
  if (fast) {
    UNROLL for (int i = 0; i < B; i += step) {
      cp_async16(to + i * Rows<D>::stride, p, i < left);
      p += step * ld;
    }
    return;
  }
  NOUNROLL for (int i = 0; i < B; i += step) {
    float v[8];
    load<8>(v, p, i < left ? w - c : 0, false);
    store<8>(to + i * Rows<D>::stride, v, 8, true);
    p += step * ld;
  }
}

// begin_load_column brings B floats ld apart, as begin_load does.
template <int B>
DEVICE void begin_load_column(float* to, const float* from, long ld, int r0, int seq) {
  for (int e = thread(); e < B; e += kWarps * 32) {
    bool exists = r0 + e < seq;
    cp_async4(to + e, from + (exists ? (r0 + e) * ld : 0), exists);
  }
}

// left_part is the 16 × 16 part of a tile at (row, column) as the left operand.
template <int D>
DEVICE void left_part(unsigned* a, const bf16* tile, int row, int column) {
  int lane = thread() % 32;
  ldmatrix4(a, tile + (row + lane % 16) * Rows<D>::stride + column + lane / 16 * 8);
}

// right_rows is the part of a tile at rows [row, row + 16) and columns [column, column + 16) as
// two right operands: the product of the columns of the left with these rows.
template <int D>
DEVICE void right_rows(unsigned* b, const bf16* tile, int row, int column) {
  int lane = thread() % 32;
  ldmatrix4(b, tile + (row + lane / 16 * 8 + lane % 8) * Rows<D>::stride + column + lane / 8 % 2 * 8);
}

// right_columns is the same part for a product of the columns of the left with these columns.
template <int D>
DEVICE void right_columns(unsigned* b, const bf16* tile, int row, int column) {
  int lane = thread() % 32;
  ldmatrix4_trans(b, tile + (row + lane % 16) * Rows<D>::stride + column + lane / 16 * 8);
}

// s = x·yᵀ: rows [row, row + 16) of x with all B rows of y.
template <int D, int B>
DEVICE void product_of_rows(float (*s)[4], const bf16* x, int row, const bf16* y) {
  UNROLL for (int j = 0; j < B / 8; j++)
    UNROLL for (int e = 0; e < 4; e++) s[j][e] = 0;
  UNROLL for (int k = 0; k < D; k += 16) {
    unsigned a[4], b[4];
    left_part<D>(a, x, row, k);
    UNROLL for (int j = 0; j < B; j += 16) {
      right_rows<D>(b, y, j, k);
      mma_bf16(s[j / 8], a, b);
      mma_bf16(s[j / 8 + 1], a, b + 2);
    }
  }
}

// acc += p·y, p 16 × B rounded to bf16, y B × D.
template <int D, int B>
DEVICE void add_product(float (*acc)[4], float (*p)[4], const bf16* y) {
  UNROLL for (int k = 0; k < B; k += 16) {
    float *l = p[k / 8], *r = p[k / 8 + 1];
    unsigned a[4] = {round_bf16x2(l[0], l[1]), round_bf16x2(l[2], l[3]), round_bf16x2(r[0], r[1]), round_bf16x2(r[2], r[3])};
    UNROLL for (int j = 0; j < D; j += 16) {
      unsigned b[4];
      right_columns<D>(b, y, k, j);
      mma_bf16(acc[j / 8], a, b);
      mma_bf16(acc[j / 8 + 1], a, b + 2);
    }
  }
}

// put_part writes the warp's 16 × D result, times the factor of its row, as rows [r0 + row, …) of a
// matrix. It goes through rows [row, row + 16) of a tile that only this warp still uses, to be
// written in whole pieces.
template <int D>
DEVICE void put_part(bf16* to, long ld, int r0, int seq, int w, float (*acc)[4], float upper, float lower, bf16* tile, int row) {
  int lane = thread() % 32, g = lane / 4, t = lane % 4;
  warp_sync();
  UNROLL for (int j = 0; j < D / 8; j++) {
    unsigned* p = (unsigned*)(tile + (row + g) * Rows<D>::stride + 8 * j + 2 * t);
    p[0] = round_bf16x2(acc[j][0] * upper, acc[j][1] * upper);
    p[4 * Rows<D>::stride] = round_bf16x2(acc[j][2] * lower, acc[j][3] * lower);
  }
  warp_sync();
  bool fast = pieces(to, ld, w);
  for (int e = lane; e < 16 * (D / 8); e += 32) {
    int r = row + e / (D / 8), c = e % (D / 8) * 8;
    if (r0 + r >= seq || c >= w) continue;
    const bf16* from = tile + r * Rows<D>::stride + c;
    bf16* p = to + (r0 + r) * ld + c;
    if (fast) {
      store16(p, load16(from));
    } else {
      for (int i = 0; i < 8 && c + i < w; i++) p[i] = from[i];
    }
  }
}
