// What the lanes of a warp do together, and the arithmetic that the host's processor
// does not have.
#include <math.h>

#include <cmath>

#include "internal.h"

namespace emu {

void warp_sync(int line) {
  meet(line, nullptr, [](void**) { warps[state.now->number / 32].epoch++; });
}

struct Shuffle {
  float in, out;
  int mask;
};

float shuffle_xor(float v, int mask, int line) {
  Shuffle s = {v, 0, mask};
  meet(line, &s, [](void** lanes) {
    for (int i = 0; i < 32; i++) {
      Shuffle* s = (Shuffle*)lanes[i];
      s->out = ((Shuffle*)lanes[(i ^ s->mask) & 31])->in;
    }
  });
  return s.out;
}

struct Rows {
  unsigned* r;
  const void* row;
  bool transposed;
};

// Lane 8·i + j names row j of matrix i, eight halves; lane l receives of each matrix
// row l/4, columns 2·(l%4) and the next, or of the transposed matrix.
void ldmatrix4(unsigned* r, const void* row, bool transposed, int line) {
  if ((uintptr_t)row % 16 != 0) fail("ldmatrix at line %d: the row at %p is not aligned to 16 bytes", line, row);
  if ((const char*)row < state.shared || (const char*)row >= state.shared + kMaxShared) {
    fail("ldmatrix at line %d: the row at %p is not in shared memory", line, row);
  }
  access(row, 16, false);
  Rows mine = {r, row, transposed};
  meet(line, &mine, [](void** lanes) {
    for (int l = 0; l < 32; l++) {
      Rows* to = (Rows*)lanes[l];
      for (int i = 0; i < 4; i++) {
        uint16_t half[2];
        for (int e = 0; e < 2; e++) {
          int at = l / 4, column = l % 4 * 2 + e;
          if (to->transposed) std::swap(at, column);
          half[e] = ((const uint16_t*)((Rows*)lanes[8 * i + at])->row)[column];
        }
        to->r[i] = half[0] | (unsigned)half[1] << 16;
      }
    }
  });
}

struct Product {
  float* c;
  const unsigned *a, *b;
};

static float half(unsigned word, int i) {
  unsigned bits = i ? word & 0xffff0000 : word << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

// mma.m16n8k16, row and column operands. Lane l with g = l/4 and t = l%4 holds of A rows g
// and g+8 at columns 2t, 2t+1 and those 8 after, of B the same rows at column g, of
// C rows g and g+8 at columns 2t, 2t+1. The card adds in an order and with a
// rounding that nobody documents; here the sum is exact, then rounded once.
void mma_bf16(float* c, const unsigned* a, const unsigned* b, int line) {
  Product mine = {c, a, b};
  meet(line, &mine, [](void** lanes) {
    float A[16][16], B[16][8];
    for (int l = 0; l < 32; l++) {
      Product* p = (Product*)lanes[l];
      int g = l / 4, t = l % 4;
      for (int e = 0; e < 2; e++) {
        A[g][2 * t + e] = half(p->a[0], e);
        A[g + 8][2 * t + e] = half(p->a[1], e);
        A[g][2 * t + 8 + e] = half(p->a[2], e);
        A[g + 8][2 * t + 8 + e] = half(p->a[3], e);
        B[2 * t + e][g] = half(p->b[0], e);
        B[2 * t + 8 + e][g] = half(p->b[1], e);
      }
    }
    double C[16][8] = {};
    for (int i = 0; i < 16; i++)
      for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++) C[i][j] += (double)A[i][k] * B[k][j];
    for (int l = 0; l < 32; l++) {
      float* to = ((Product*)lanes[l])->c;
      for (int e = 0; e < 4; e++) to[e] = (float)(to[e] + C[l / 4 + e / 2 * 8][l % 4 * 2 + e % 2]);
    }
  });
}

// Within 2^-22 of what f says, off by an amount that only the argument decides: as
// wrong as PTX allows, so that a kernel that needs more fails here too.
static float off(float x, double y, double unit) {
  uint32_t h;
  memcpy(&h, &x, 4);
  h = (h ^ h >> 16) * 0x45d9f3b;
  h = (h ^ h >> 16) * 0x45d9f3b;
  h ^= h >> 16;
  return (float)(y + unit * 0.75 * 0x1p-22 * ((double)h / 0x7fffffff - 1));
}

float exp2_approx(float x) {
  if (fabsf(x) < 0x1p-126f) x = 0;
  double y = exp2((double)x);
  float r = std::isfinite(y) ? off(x, y, y) : (float)y;
  return fabsf(r) < 0x1p-126f ? 0 : r;
}

// The error is absolute for x in (0.5, 2), relative elsewhere.
float log2_approx(float x) {
  double y = log2((double)x);
  if (!std::isfinite(y)) return (float)y;
  return off(x, y, x > 0.5f && x < 2 ? 1 : fabs(y));
}

float reciprocal_approx(float x) {
  double y = 1 / (double)x;
  float r = std::isfinite(y) ? off(x, y, y / 2) : (float)y;
  return fabsf(r) < 0x1p-126f ? 0 : r;
}

static unsigned bf16(float f) {
  unsigned bits;
  memcpy(&bits, &f, 4);
  if (f != f) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

unsigned round_bf16x2(float low, float high) { return bf16(low) | bf16(high) << 16; }

}  // namespace emu
