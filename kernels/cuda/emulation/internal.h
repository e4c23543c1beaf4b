// What the parts of the emulation know of each other.
#pragma once
#include <stdint.h>

#include <mutex>
#include <vector>

#include "emu.h"
#include "emulation.h"

namespace emu {

const int kMaxThreads = 1024, kMaxShared = 232448;  // bytes of a block: the most of any card up to sm_90
const size_t kStack = 256 << 10;
// Memory that nobody wrote, by halves: a signalling NaN in bf16 and in fp32, which
// no instruction computes, and no small integer.
const uint16_t kPoison = 0x7fa3;

struct Copy {  // a cp.async under way
  void* to;
  const void* from;
  int bytes;
  bool exists;  // else zeros come
  int group;
};

// Fiber is a thread of the block.
struct Fiber {
  void* sp;
  char* stack;      // its lowest byte
  int number;
  bool ended;
  int waits_at;     // line of the collective that it waits at, 0 while it runs
  bool for_block;   // of the whole block, else of the warp
  void* operand;    // of a warp's collective, on the fiber's stack
  int groups;       // cp.async groups committed
  std::vector<Copy> copies;
};

struct Warp {
  int arrived;
  int line;
  unsigned epoch;  // warp_syncs so far
};

// The launch that runs. One at a time: who holds launch_lock.
extern std::mutex launch_lock;
struct State {
  const Kernel* kernel;
  unsigned grid[3], block_size[3], block[3];
  void** args;
  int threads;
  Fiber* now;          // null outside of kernels
  uint64_t random;
  char* shared;        // memory of the block
  size_t shared_used;
  size_t dynamic_bytes;
  unsigned epoch;      // barriers of the block so far
  uint64_t block_serial;
  unsigned launch_serial;
  char* error;
  size_t error_size;
  bool failed;
};
extern State state;
extern Fiber fibers[kMaxThreads];
extern Warp warps[kMaxThreads / 32];

uint64_t random_bits();
// Ends the launch with an error about the thread that runs.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Waits until all 32 lanes have called it at this line. The last one runs
// together(operands of the lanes).
void meet(int line, void* operand, void (*together)(void** lanes));

// Fiber switching (fiber.cc): saves the running stack's pointer, continues another.
void fiber_start(Fiber*, void (*entry)());
void fiber_switch(void** save, void* to);

// Memory checks (memory.cc).
struct Variable {  // of shared memory
  const char* name;
  int line;
  size_t at, size;
};
extern std::vector<Variable> variables;
void access(const void* p, size_t size, bool write);
void poison(void* p, size_t size);
void begin_launch_memory();
void begin_block_memory();

}  // namespace emu
