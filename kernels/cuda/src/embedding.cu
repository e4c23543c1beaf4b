// The table of token vectors: gather, and scatter in the order of the rows.
#include "device.h"

// Grid (rows).
template <class T>
DEVICE void forward(T* y, const T* table, const int* ids, int dim, int vocab, u64* fault) {
  const int N = Pack<T>::N;
  int i = block_x(), id = ids[i];
  bool bad = id_outside(id, vocab, i, fault);
  const T* from = table + (long)(bad ? 0 : id) * dim;
  y += (long)i * dim;
  bool whole_packs = whole<N>(from) && whole<N>(y);
  float v[N];
  for (int c = thread() * N; c < dim; c += threads() * N) {
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      load<N>(v, from + c, left, fast);
      UNROLL for (int j = 0; j < N; j++) v[j] = bad ? 0 : v[j];
      store<N>(y + c, v, left, fast);
    });
  }
}

// The scatter's order: rows sorted by id, those of one id in their order. A key is an id and a row, so no two are equal.
DEVICE u64 key_of(int id, int row) { return (u64)(unsigned)id << 32 | (unsigned)row; }
DEVICE int id_of(u64 key) { return (int)(key >> 32); }

// Sorts tiles of 2·threads keys, a power of two of threads: a bitonic network (Batcher, 1968). Grid (rows / tile).
KERNEL(embedding_sort, 512, u64* out, const int* ids, int rows) {
  SHARED(u64, keys, [1024]);
  int t = thread(), tile = 2 * threads(), base = block_x() * tile;
  for (int q = t; q < tile; q += threads()) keys[q] = base + q < rows ? key_of(ids[base + q], base + q) : ~0ull;
  for (int size = 2; size <= tile; size *= 2) {
    for (int half = size / 2; half > 0; half /= 2) {
      barrier();
      int i = t / half * 2 * half + t % half, j = i + half;
      u64 a = keys[i], b = keys[j];
      if ((a > b) == ((i & size) == 0)) keys[i] = b, keys[j] = a;
    }
  }
  barrier();
  for (int q = t; q < tile; q += threads())
    if (base + q < rows) out[base + q] = keys[q];
}

// Merges each two sorted runs of keys: one's place is its own and how many of the other run come before it. Grid (rows / 256).
KERNEL(embedding_merge, 256, u64* out, const u64* in, int rows, int run) {
  int i = block_x() * threads() + thread();
  if (i >= rows) return;
  u64 key = in[i];
  int mine = i / run * run, pair = i / (2 * run) * 2 * run, other = mine == pair ? pair + run : pair;
  int low = other < rows ? other : rows, high = (int)min_((long)other + run, rows), first = low;
  while (low < high) {
    int middle = (low + high) / 2;
    if (in[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  out[pair + (i - mine) + (low - first)] = key;
}

// Grid (rows, columns / 512), 128 threads. The block of an id's first key adds all rows with that id, in their order, so that
// the sum is defined to the bit and no two blocks touch one row of the table. A thread has four columns.
template <class T>
DEVICE void backward(float* dtable, const u64* sorted, const T* dy, int rows, int dim, int vocab, u64* fault) {
  int i = block_x(), id = id_of(sorted[i]), c = (block_y() * 128 + thread()) * 4;
  if (id_outside(id, vocab, (int)sorted[i], fault)) return;
  if (i > 0 && id_of(sorted[i - 1]) == id) return;
  float* row = dtable + (long)id * dim;
  bool fast = whole<4>(row), whole_rows = whole<4>(dy) && dim % 4 == 0;
  float sum[4], v[4][4];
  load<4>(sum, row + c, dim - c, fast);
  for (bool more = true; more; i += 4) {
    // Four rows at once, whose loads need not wait for each other.
    int n = 0;
    UNROLL for (int k = 0; k < 4; k++) {
      bool same = n == k && i + k < rows && id_of(sorted[i + k]) == id;
      load<4>(v[k], dy + (long)(same ? (int)sorted[i + k] : 0) * dim + c, same ? dim - c : 0, whole_rows);
      n += same;
    }
    UNROLL for (int k = 0; k < 4; k++) {
      UNROLL for (int q = 0; q < 4; q++) sum[q] = k < n ? sum[q] + v[k][q] : sum[q];
    }
    more = n == 4;
  }
  store<4>(row + c, sum, dim - c, fast);
}

#define EMBEDDING(S, T)                                                                                              \
  KERNEL(embedding_forward_##S, 256, T* y, const T* table, const int* ids, int dim, int vocab, u64* fault) {         \
    forward<T>(y, table, ids, dim, vocab, fault);                                                                    \
  }                                                                                                                  \
  KERNEL(embedding_backward_##S, 128, float* dtable, const u64* sorted, const T* dy, int rows, int dim, int vocab,   \
         u64* fault) {                                                                                               \
    backward<T>(dtable, sorted, dy, rows, dim, vocab, fault);                                                        \
  }
EACH_TYPE(EMBEDDING)
