// What ../src/gpu.h offers on a card, for the host's processor: the kernels see no
// difference. Threads of a block are fibers; what needs several of them (barriers,
// shuffles, matrix fragments) lies in emulation.cc and warp.cc.
#pragma once
#include <stddef.h>
#include <string.h>

#include <utility>

// PREFIX, empty unless a source defines it, tells variants of one kernel apart.
#ifndef PREFIX
#define PREFIX
#endif
#define EMU_JOIN(a, b) a##b
#define EMU_JOINED(a, b) EMU_JOIN(a, b)
#define EMU_KERNEL(name, threads, ...)                                        \
  extern "C" void name(__VA_ARGS__);                                          \
  static const emu::Kernel name##_kernel = emu::kernel(#name, threads, name); \
  static const emu::Registration name##_registration(&name##_kernel);         \
  extern "C" void name(__VA_ARGS__)
#define EMU_NAMED(name, threads, ...) EMU_KERNEL(name, threads, __VA_ARGS__)
#define KERNEL(name, threads, ...) EMU_NAMED(EMU_JOINED(PREFIX, name), threads, __VA_ARGS__)
#define KERNEL_SHARING(name, threads, blocks, ...) KERNEL(name, threads, __VA_ARGS__)
#define DEVICE static inline __attribute__((always_inline))
#define SHARED(type, name, dims)                                                  \
  typedef type name##_shared dims;                                                \
  name##_shared& name = *(name##_shared*)emu::shared(#name, __LINE__, sizeof(name##_shared))
#define DYNAMIC_SHARED(type, name) type* name = (type*)emu::dynamic_shared()
#define INLINE __attribute__((always_inline))
#define UNROLL
#define NOUNROLL
#define UNROLL4
#define UNROLL2

namespace emu {

// A kernel as the launcher sees it. The first three are struct emu_kernel of emu.h.
struct Kernel {
  const char* name;
  int params, max_threads;
  const unsigned* sizes;
  void (*call)(void (*)(), void** args);
  void (*function)();
};

struct Registration {
  explicit Registration(const Kernel*);
};

// The arguments lie in the launcher's memory, where a kernel has no business.
template <class... A, size_t... I>
__attribute__((no_sanitize("thread"))) void spread(void (*f)(A...), void** args, std::index_sequence<I...>) {
  f(*(A*)args[I]...);
}

template <class... A>
__attribute__((no_sanitize("thread"))) void call(void (*f)(), void** args) {
  spread((void (*)(A...))f, args, std::index_sequence_for<A...>());
}

template <class... A>
Kernel kernel(const char* name, int threads, void (*f)(A...)) {
  static const unsigned sizes[] = {sizeof(A)..., 0};
  return {name, sizeof...(A), threads, sizes, call<A...>, (void (*)())f};
}

// The number of the fiber that runs and of its block. They never change within a
// fiber, which is all that a compiler sees of it: so "const".
int thread() __attribute__((const));
int threads() __attribute__((const));
int block(int axis) __attribute__((const));
int blocks(int axis) __attribute__((const));

// Each names the line it stands on: threads that meet at different lines have diverged.
void barrier(int line);
void warp_sync(int line);
float shuffle_xor(float v, int mask, int line);
void ldmatrix4(unsigned* r, const void* row, bool transposed, int line);
void mma_bf16(float* c, const unsigned* a, const unsigned* b, int line);

void* shared(const char* name, int line, size_t size);
void* dynamic_shared();
void read(void* to, const void* p, size_t size);
void write(void* p, const void* from, size_t size);
void cp_async(void* to, const void* from, int bytes, bool exists);
void cp_async_commit();
void cp_async_wait(int pending);
void atomic_min(unsigned long long* p, unsigned long long v);

float exp2_approx(float x);
float log2_approx(float x);
float reciprocal_approx(float x);
unsigned round_bf16x2(float low, float high);

}  // namespace emu

DEVICE int thread() { return emu::thread(); }
DEVICE int threads() { return emu::threads(); }
DEVICE int block_x() { return emu::block(0); }
DEVICE int block_y() { return emu::block(1); }
DEVICE int blocks_x() { return emu::blocks(0); }

DEVICE void barrier(int line = __builtin_LINE()) { emu::barrier(line); }
DEVICE void warp_sync(int line = __builtin_LINE()) { emu::warp_sync(line); }
DEVICE float shuffle_xor(float v, int mask, int line = __builtin_LINE()) { return emu::shuffle_xor(v, mask, line); }

DEVICE float exp2_approx(float x) { return emu::exp2_approx(x); }
DEVICE float log2_approx(float x) { return emu::log2_approx(x); }
DEVICE float reciprocal_approx(float x) { return emu::reciprocal_approx(x); }
DEVICE float as_float(unsigned bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
DEVICE unsigned round_bf16x2(float low, float high) { return emu::round_bf16x2(low, high); }
DEVICE void atomic_min(unsigned long long* p, unsigned long long v) { emu::atomic_min(p, v); }

struct Words2 {
  unsigned v[2];
};
struct Words4 {
  unsigned v[4];
};
DEVICE Words2 load8(const void* p) {
  Words2 w;
  emu::read(&w, p, 8);
  return w;
}
DEVICE Words4 load16(const void* p) {
  Words4 w;
  emu::read(&w, p, 16);
  return w;
}
DEVICE void store8(void* p, Words2 w) { emu::write(p, &w, 8); }
DEVICE void store16(void* p, Words4 w) { emu::write(p, &w, 16); }

DEVICE void cp_async16(void* to, const void* from, bool exists) { emu::cp_async(to, from, 16, exists); }
DEVICE void cp_async4(void* to, const void* from, bool exists) { emu::cp_async(to, from, 4, exists); }
DEVICE void cp_async_commit() { emu::cp_async_commit(); }
template <int pending>
DEVICE void cp_async_wait() {
  emu::cp_async_wait(pending);
}

DEVICE void ldmatrix4(unsigned* r, const void* row, int line = __builtin_LINE()) { emu::ldmatrix4(r, row, false, line); }
DEVICE void ldmatrix4_trans(unsigned* r, const void* row, int line = __builtin_LINE()) { emu::ldmatrix4(r, row, true, line); }
DEVICE void mma_bf16(float* c, const unsigned* a, const unsigned* b, int line = __builtin_LINE()) {
  emu::mma_bf16(c, a, b, line);
}
