// An MPI library that says it takes memory of GPUs, as CUDA-aware ones do: the real one below, which moves what lies at
// the addresses it is given. The GPU of the tests is emulated, so its memory is the host's, and any library can. With
// AWARE_SPOILS in the environment, device memory travels as zeros: a library that claims what it cannot.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int MPIX_Query_cuda_support(void) { return 1; }

// The emulation's allocations are memory files of this name.
static int of_device(const void *p) {
  char line[512];
  int found = 0;
  FILE *f = fopen("/proc/self/maps", "r");
  while (f && !found && fgets(line, sizeof line, f)) {
    unsigned long from, to;
    found = sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)p >= from && (uintptr_t)p < to && strstr(line, "emulated device memory");
  }
  if (f) fclose(f);
  return found;
}

// Handles are pointers in Open MPI and numbers in MPICH: both fit.
typedef uintptr_t handle;
typedef int (*isend)(const void *, int, handle, int, int, handle, void *);

int MPI_Isend(const void *buf, int count, handle type, int to, int tag, handle comm, void *request) {
  static const char zeros[1 << 20];
  static isend real;
  if (!real) real = (isend)dlsym(RTLD_DEFAULT, "PMPI_Isend");
  if (getenv("AWARE_SPOILS") && count <= (int)sizeof zeros && of_device(buf)) buf = zeros;
  return real(buf, count, type, to, tag, comm, request);
}
