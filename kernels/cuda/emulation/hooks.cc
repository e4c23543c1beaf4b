// The calls that g++ -fsanitize=thread puts before each access to memory. The real
// ones belong to a library that is not linked.
#include "internal.h"

using emu::access;

#define HOOKS(size)                                                                           \
  extern "C" void __tsan_read##size(void* p) { emu::hook(p, size, false); }                   \
  extern "C" void __tsan_write##size(void* p) { emu::hook(p, size, true); }                   \
  extern "C" void __tsan_volatile_read##size(void* p) { emu::hook(p, size, false); }          \
  extern "C" void __tsan_volatile_write##size(void* p) { emu::hook(p, size, true); }          \
  extern "C" void __tsan_unaligned_read##size(void* p) { emu::hook(p, size, false); }         \
  extern "C" void __tsan_unaligned_write##size(void* p) { emu::hook(p, size, true); }

namespace emu {

static void hook(void* p, size_t size, bool write) {
  if (!state.now || (uintptr_t)p - (uintptr_t)state.now->stack < kStack) return;  // a local of the thread
  if ((uintptr_t)p % size != 0) fail("%s %zu bytes at %p, which is not aligned to them", write ? "writes" : "reads", size, p);
  access(p, size, write, true);
}

}  // namespace emu

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

extern "C" void __tsan_read_range(void* p, long size) { access(p, (size_t)size, false, true); }
extern "C" void __tsan_write_range(void* p, long size) { access(p, (size_t)size, true, true); }
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}
