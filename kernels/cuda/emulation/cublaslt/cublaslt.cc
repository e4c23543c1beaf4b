// The stand-in for libcublasLt: plain products in the order of the stream, column-major as
// the library's. It refuses what the real one would: an algorithm of another product, matrices less
// aligned than was said, too little workspace; and finds two products that use one workspace at once.
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <thread>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum { kOK = 0, kNotInitialized = 1, kInvalidValue = 7, kNotSupported = 15 };

struct Layout {
  int type;  // 0: fp32, 14: bf16
  uint64_t rows, cols;
  int64_t ld;
};
struct Desc {
  int compute, trans_a, trans_b;
};
struct Preference {
  uint64_t workspace;
  uint32_t aligned[4];
};
struct Result {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Result) == 96, "a heuristic's result has 96 bytes");

const uint64_t kWorkspace = 1 << 12;

typedef int (*Submit)(void* stream, int (*run)(void*), void* arg, void (*release)(void*));

// Looks for the stand-in of libcuda whose context is current: tests load several.
int find(dl_phdr_info* info, size_t, void* found) {
  void* lib = *info->dlpi_name ? dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (!lib) return 0;
  int (*ready)();
  *(void**)&ready = dlsym(lib, "emu_ready");
  if (ready && ready() == 0) *(void**)found = dlsym(lib, "emu_submit");
  dlclose(lib);
  return *(void**)found != nullptr;
}

uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x100000001b3ull; }

// What an algorithm is good for.
uint64_t fingerprint(const Desc* d, const Layout* a, const Layout* b, const Layout* c) {
  uint64_t h = mix(mix(mix(1469598103934665603ull, (uint64_t)d->compute), (uint64_t)d->trans_a), (uint64_t)d->trans_b);
  for (const Layout* l : {a, b, c}) h = mix(mix(mix(mix(h, (uint64_t)l->type), l->rows), l->cols), (uint64_t)l->ld);
  return h;
}

float get(const void* p, int type, uint64_t i) {
  if (type == 0) return ((const float*)p)[i];
  uint32_t w = (uint32_t)((const uint16_t*)p)[i] << 16;
  float f;
  memcpy(&f, &w, 4);
  return f;
}

void put(void* p, int type, uint64_t i, float v) {
  if (type == 0) {
    ((float*)p)[i] = v;
    return;
  }
  uint32_t w;
  memcpy(&w, &v, 4);
  w = v == v ? w + 0x7fff + (w >> 16 & 1) : w | 0x400000;
  ((uint16_t*)p)[i] = (uint16_t)(w >> 16);
}

// What tf32 keeps of a float: 10 bits of fraction.
float tf32(float v) {
  uint32_t w;
  memcpy(&w, &v, 4);
  w = (w + 0x1000) & 0xffffe000;
  memcpy(&v, &w, 4);
  return v;
}

struct Job {
  Desc d;
  Layout la, lb, lc;
  float alpha, beta;
  const void *a, *b;
  void* c;
  std::atomic<uint64_t>* work;
};

int run(void* arg) {
  Job* j = (Job*)arg;
  static std::atomic<uint64_t> runs;
  uint64_t mine = ++runs;
  if (j->work) j->work->store(mine);
  uint64_t m = j->lc.rows, n = j->lc.cols, k = j->d.trans_a ? j->la.rows : j->la.cols;
  bool low = j->d.compute == 77;
  float* at = (float*)malloc((m * k + 1) * sizeof(float));  // rows of op(A)
  for (uint64_t i = 0; i < m; i++)
    for (uint64_t l = 0; l < k; l++) {
      float v = get(j->a, j->la.type, j->d.trans_a ? i * (uint64_t)j->la.ld + l : l * (uint64_t)j->la.ld + i);
      at[i * k + l] = low ? tf32(v) : v;
    }
  float* col = (float*)malloc((k + 1) * sizeof(float));
  for (uint64_t q = 0; q < n; q++) {
    for (uint64_t l = 0; l < k; l++) {
      float v = get(j->b, j->lb.type, j->d.trans_b ? l * (uint64_t)j->lb.ld + q : q * (uint64_t)j->lb.ld + l);
      col[l] = low ? tf32(v) : v;
    }
    for (uint64_t i = 0; i < m; i++) {
      float sum[8] = {0};
      const float* row = at + i * k;
      uint64_t l = 0;
      for (; l + 8 <= k; l += 8)
        for (int x = 0; x < 8; x++) sum[x] += row[l + x] * col[l + x];
      for (; l < k; l++) sum[0] += row[l] * col[l];
      float s = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
      uint64_t to = q * (uint64_t)j->lc.ld + i;
      put(j->c, j->lc.type, to, j->beta == 0 ? j->alpha * s : j->alpha * s + j->beta * get(j->c, j->lc.type, to));
    }
  }
  free(at);
  free(col);
  static const int delay = getenv("PIPETRAIN_EMULATION_DELAY") ? atoi(getenv("PIPETRAIN_EMULATION_DELAY")) : 150;
  if (j->work && delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  if (j->work && j->work->load() != mine) {
    // Another product wrote here meanwhile: the result would be wrong on a card.
    for (uint64_t i = 0; i < m; i++) put(j->c, j->lc.type, i, __builtin_nanf(""));
  }
  return 0;
}

}  // namespace

API size_t cublasLtGetVersion() { return 120999; }

API int cublasLtCreate(void** handle) {
  void* submit = nullptr;
  dl_iterate_phdr(find, &submit);
  if (!submit) return kNotInitialized;
  return *handle = submit, kOK;
}
API int cublasLtDestroy(void*) { return kOK; }

API int cublasLtMatmulDescCreate(Desc** d, int compute, int scale) {
  if ((compute != 68 && compute != 77) || scale != 0) return kInvalidValue;
  return *d = new Desc{compute, 0, 0}, kOK;
}
API int cublasLtMatmulDescDestroy(Desc* d) { return delete d, kOK; }
API int cublasLtMatmulDescSetAttribute(Desc* d, int what, const void* v, size_t size) {
  int op = *(const int*)v;
  if ((what != 3 && what != 4) || size != 4 || op < 0 || op > 1) return kInvalidValue;
  return (what == 3 ? d->trans_a : d->trans_b) = op, kOK;
}

API int cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if ((type != 0 && type != 14) || ld < (int64_t)rows) return kInvalidValue;
  return *l = new Layout{type, rows, cols, ld}, kOK;
}
API int cublasLtMatrixLayoutDestroy(Layout* l) { return delete l, kOK; }

API int cublasLtMatmulPreferenceCreate(Preference** p) { return *p = new Preference{0, {256, 256, 256, 256}}, kOK; }
API int cublasLtMatmulPreferenceDestroy(Preference* p) { return delete p, kOK; }
API int cublasLtMatmulPreferenceSetAttribute(Preference* p, int what, const void* v, size_t size) {
  if (what == 1 && size == 8) return p->workspace = *(const uint64_t*)v, kOK;
  if (what >= 5 && what <= 8 && size == 4) return p->aligned[what - 5] = *(const uint32_t*)v, kOK;
  return kInvalidValue;
}

API int cublasLtMatmulAlgoGetHeuristic(void*, Desc* d, Layout* a, Layout* b, Layout* c, Layout* out, Preference* p, int asked,
                                       Result* r, int* found) {
  uint64_t m = d->trans_a ? a->cols : a->rows, k = d->trans_a ? a->rows : a->cols;
  uint64_t kb = d->trans_b ? b->cols : b->rows, n = d->trans_b ? b->rows : b->cols;
  *found = 0;
  if (k != kb || m != c->rows || n != c->cols || c != out || asked < 1 || a->type != b->type) return kInvalidValue;
  if (getenv("PIPETRAIN_EMULATION_NO_PRODUCTS") || (a->type == 0 && c->type != 0)) return kNotSupported;
  memset(r, 0, sizeof *r);
  r->algorithm[0] = fingerprint(d, a, b, c);
  for (int i = 0; i < 4; i++) r->algorithm[1 + i] = p->aligned[i];
  r->workspace = p->workspace < kWorkspace ? 0 : kWorkspace;
  return *found = 1, kOK;
}

API int cublasLtMatmul(void* handle, Desc* d, const float* alpha, const void* a, Layout* la, const void* b, Layout* lb,
                       const float* beta, const void* c, Layout* lc, void* out, Layout* lout, const uint64_t* algorithm,
                       void* work, size_t work_size, void* stream) {
  if (!handle || !algorithm || c != out || lc != lout) return kInvalidValue;
  if (algorithm[0] != fingerprint(d, la, lb, lc)) return kInvalidValue;
  const void* all[4] = {a, b, c, out};
  for (int i = 0; i < 4; i++) {
    if ((uintptr_t)all[i] % algorithm[1 + i] != 0) return kInvalidValue;
  }
  if (work_size < kWorkspace) work = nullptr;
  Job* j = new Job{*d, *la, *lb, *lc, *alpha, *beta, a, b, out, (std::atomic<uint64_t>*)work};
  return ((Submit)handle)(stream, run, j, [](void* p) { delete (Job*)p; }) ? 13 : kOK;
}
