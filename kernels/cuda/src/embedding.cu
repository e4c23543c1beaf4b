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

// Grid (rows, columns / 512), 128 threads. The block of an id's first row adds
// all rows with that id, in their order, so that the sum is defined to the bit and no
// two blocks touch one row of the table. A thread has four columns.
template <class T>
DEVICE void backward(float* dtable, const int* ids, const T* dy, int rows, int dim, int vocab, u64* fault) {
  SHARED(int, hit, [128]);
  int i = block_x(), id = ids[i], t = thread(), c = (block_y() * 128 + t) * 4;
  if (id_outside(id, vocab, i, fault)) return;
  for (int base = 0; base < i; base += 1024) {
    int earlier = 0;
    UNROLL for (int q = 0; q < 8; q++) {
      int j = base + q * 128 + t;
      earlier |= j < i && ids[j] == id;
    }
    if (barrier_or(earlier)) return;
  }
  float* row = dtable + (long)id * dim;
  bool fr = whole<4>(row);
  float sum[4], v[4];
  load<4>(sum, row + c, dim - c, fr);
  for (int base = i; base < rows; base += 128) {
    int match = base + t < rows && ids[base + t] == id;
    hit[t] = match;
    if (!barrier_or(match)) continue;
    for (int k = 0; k < 128; k++) {
      if (!hit[k]) continue;
      const T* from = dy + (long)(base + k) * dim;
      load<4>(v, from + c, dim - c, whole<4>(from));
      UNROLL for (int q = 0; q < 4; q++) sum[q] += v[q];
    }
    barrier();  // hit is read no more
  }
  store<4>(row + c, sum, dim - c, fr);
}

#define EMBEDDING(S, T)                                                                                              \
  KERNEL(embedding_forward_##S, 256, T* y, const T* table, const int* ids, int dim, int vocab, u64* fault) {         \
    forward<T>(y, table, ids, dim, vocab, fault);                                                                    \
  }                                                                                                                  \
  KERNEL(embedding_backward_##S, 128, float* dtable, const int* ids, const T* dy, int rows, int dim, int vocab, u64* fault) { \
    backward<T>(dtable, ids, dy, rows, dim, vocab, fault);                                                           \
  }
EACH_TYPE(EMBEDDING)
