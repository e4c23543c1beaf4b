// The emulation as a launcher uses it: the stand-in libcuda, and the tests.
// All functions may be called from any thread; launches run one at a time.
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMU_API __attribute__((visibility("default")))

struct emu_kernel {
  const char* name;
  int params;             // number of parameters
  int max_threads;        // largest number of threads of a block
  const unsigned* sizes;  // bytes of each parameter
};

// The kernel of that name, or a null pointer.
EMU_API const struct emu_kernel* emu_find(const char* name);

// Runs all threads of all blocks, x first. shared_bytes is the dynamic shared memory of a block; args[i]
// points to the value of parameter i. Returns 0, or 1 with a line in error that
// says which block and thread did what at which address.
EMU_API int emu_launch(const struct emu_kernel*, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, void** args,
               char* error, size_t error_size);

// Device memory that kernels may touch: [base, base + size). It is filled with a
// pattern that tells what nobody wrote: a kernel that reads it fails. Copies and
// memsets by the host need no word. Freed ranges are forgotten.
EMU_API void emu_alloc_range(void* base, size_t size);
EMU_API void emu_free_range(void* base);

// The order in which threads and blocks run follows from the seed; without a call
// it is that of the environment's PIPETRAIN_EMULATION_SEED, else 1.
EMU_API void emu_seed(unsigned long long seed);

#ifdef __cplusplus
}
#endif
