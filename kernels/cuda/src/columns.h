// Sums over the rows of a matrix, column by column, in two passes whose order depends on the shape alone: blocks sum
// some rows each, which keeps all multiprocessors busy however narrow the matrix is, then add_columns adds what they found.
// device.h comes before.
#pragma once

// A block's threads are 8 rows of 32, each of which takes N columns at once.
const int kColumnThreads = 256, kColumnRows = kColumnThreads / 32;

// Grid (columns / (32·N), parts), 256 threads. Block (x, y) has rows from y·chunk on. body(row, column, left, fast) adds a
// row's terms of N columns, of which left exist, to the K·N sums of the thread; parts[(y·K + k)·dim + column] is sum k.
template <int K, int N, class F>
DEVICE void sum_columns(float (&sums)[K][N], float* parts, int rows, int dim, int chunk, bool whole_packs, F body) {
  SHARED(float, part, [kColumnRows][N][32]);
  int lane = thread() % 32, row = thread() / 32, base = block_x() * 32 * N, c = base + lane * N;
  UNROLL for (int k = 0; k < K; k++) UNROLL for (int i = 0; i < N; i++) sums[k][i] = 0;
  if (c < dim) {
    int end = (int)min_(rows, (long)(block_y() + 1) * chunk);
    in_packs<N>(whole_packs, dim - c, [&](long left, bool fast) INLINE {
      UNROLL2 for (int r = block_y() * chunk + row; r < end; r += kColumnRows) body(r, c, left, fast);
    });
  }
  UNROLL for (int k = 0; k < K; k++) {
    UNROLL for (int i = 0; i < N; i++) part[row][i][lane] = sums[k][i];
    barrier();
    int t = thread();
    if (t < 32 * N && base + t < dim) {
      float s = 0;
      UNROLL for (int r = 0; r < kColumnRows; r++) s += part[r][t % N][t / N];
      parts[((long)block_y() * K + k) * dim + base + t] = s;
    }
    barrier();  // part may be used again
  }
}
