// Runs a kernel: for each block, in random order, its threads as fibers, which go on in
// random order after each collective.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "internal.h"

namespace emu {

State state;
Fiber fibers[kMaxThreads];
Warp warps[kMaxThreads / 32];

std::mutex launch_lock;
static void* launcher;  // the stack of who launched
static int ready[kMaxThreads], ready_count, ended_count;
static int barrier_line, barrier_arrived;

static std::vector<const Kernel*>& kernels() {
  static std::vector<const Kernel*> all;
  return all;
}

Registration::Registration(const Kernel* k) { kernels().push_back(k); }

uint64_t random_bits() {  // xorshift64*
  uint64_t x = state.random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  state.random = x;
  return x * 0x2545f4914f6cdd1dull;
}

static void describe(const char* format, va_list args) {
  if (state.failed) return;
  state.failed = true;
  char where[200];
  if (state.now) {
    snprintf(where, sizeof where, "%s: block (%u,%u,%u), thread %d: ", state.kernel->name, state.block[0], state.block[1],
             state.block[2], state.now->number);
  } else {
    snprintf(where, sizeof where, "%s: block (%u,%u,%u): ", state.kernel->name, state.block[0], state.block[1], state.block[2]);
  }
  int n = snprintf(state.error, state.error_size, "%s", where);
  if (n >= 0 && (size_t)n < state.error_size) vsnprintf(state.error + n, state.error_size - n, format, args);
}

static void report(const char* format, ...) __attribute__((format(printf, 1, 2)));
static void report(const char* format, ...) {
  va_list args;
  va_start(args, format);
  describe(format, args);
  va_end(args);
}

void fail(const char* format, ...) {
  va_list args;
  va_start(args, format);
  describe(format, args);
  va_end(args);
  // Nobody returns to the other fibers: their stacks are used anew by the next block.
  void* lost = state.now->sp;
  fiber_switch(&lost, launcher);
  abort();
}

int thread() { return state.now->number; }
int threads() { return state.threads; }
int block(int axis) { return (int)state.block[axis]; }
int blocks(int axis) { return (int)state.grid[axis]; }

// next continues some fiber that can run, or the launcher when none can.
static void next() {
  Fiber* from = state.now;
  if (ready_count == 0) {
    fiber_switch(&from->sp, launcher);
    return;
  }
  int pick = (int)(random_bits() % (unsigned)ready_count);
  Fiber* to = &fibers[ready[pick]];
  ready[pick] = ready[--ready_count];
  if (to == from) return;
  state.now = to;
  fiber_switch(&from->sp, to->sp);
}

static void wake(Fiber* f) {
  f->waits_at = 0;
  ready[ready_count++] = f->number;
}

// barrier counts the fiber at the block's barrier and returns once all have come.
void barrier(int line) {
  Fiber* f = state.now;
  if (barrier_arrived > 0 && barrier_line != line) {
    fail("diverged: it stands at the barrier of line %d, other threads of its block at that of line %d", line, barrier_line);
  }
  barrier_line = line;
  if (++barrier_arrived < state.threads) {
    f->waits_at = line;
    f->for_block = true;
    next();
    return;
  }
  barrier_arrived = 0;
  state.epoch++;
  for (int i = 0; i < state.threads; i++) wake(&fibers[i]);
  next();
}

void meet(int line, void* operand, void (*together)(void** lanes)) {
  Fiber* f = state.now;
  Warp* w = &warps[f->number / 32];
  if (w->arrived > 0 && w->line != line) {
    fail("diverged: it stands at the warp's operation of line %d, other lanes of its warp at that of line %d", line, w->line);
  }
  w->line = line;
  f->operand = operand;
  if (++w->arrived < 32) {
    f->waits_at = line;
    f->for_block = false;
    next();
    return;
  }
  w->arrived = 0;
  Fiber* lane = &fibers[f->number / 32 * 32];
  void* operands[32];
  for (int i = 0; i < 32; i++) operands[i] = lane[i].operand;
  together(operands);
  for (int i = 0; i < 32; i++) wake(&lane[i]);
  next();
}

static void thread_main() {
  Fiber* f = state.now;
  state.kernel->call(state.kernel->function, state.args);
  f->ended = true;
  ended_count++;
  next();
  abort();
}

// stuck tells what the threads of a block wait for that cannot come.
static void stuck() {
  // Those at the line of the first that waits, and one that waits elsewhere.
  const Fiber *first = nullptr, *other = nullptr;
  int here = 0;
  for (int i = 0; i < state.threads; i++) {
    const Fiber* f = &fibers[i];
    if (f->ended) continue;
    if (!first) first = f;
    if (f->waits_at == first->waits_at && f->for_block == first->for_block) {
      here++;
    } else if (!other) {
      other = f;
    }
  }
  auto what = [](const Fiber* f) { return f->for_block ? "barrier" : "warp's operation"; };
  char elsewhere[100] = "";
  if (other) snprintf(elsewhere, sizeof elsewhere, ", thread %d at the %s of line %d", other->number, what(other), other->waits_at);
  state.now = nullptr;
  report("diverged: %d of %d threads, thread %d first, wait at the %s of line %d%s; %d have ended", here, state.threads, first->number,
         what(first), first->waits_at, elsewhere, ended_count);
}

static void run_block() {
  state.epoch = 0;
  begin_block_memory();
  state.shared_used = 0;
  variables.clear();
  if (state.dynamic_bytes > 0) {
    variables.push_back({"dynamic shared memory", 0, 0, state.dynamic_bytes});
    state.shared_used = (state.dynamic_bytes + 127) / 128 * 128 + 128;
    poison(state.shared, state.dynamic_bytes);
  }
  ready_count = ended_count = barrier_arrived = 0;
  for (int i = 0; i < state.threads; i++) {
    Fiber* f = &fibers[i];
    f->ended = false;
    f->waits_at = f->groups = 0;
    f->copies.clear();
    fiber_start(f, thread_main);
    ready[ready_count++] = i;
  }
  for (int i = 0; i < (state.threads + 31) / 32; i++) warps[i] = Warp{};
  int pick = (int)(random_bits() % (unsigned)ready_count);
  state.now = &fibers[ready[pick]];
  ready[pick] = ready[--ready_count];
  fiber_switch(&launcher, state.now->sp);
  if (!state.failed && ended_count < state.threads) stuck();
  state.now = nullptr;
}

static bool prepare() {
  if (state.shared) return true;
  state.shared = (char*)mmap(nullptr, kMaxShared + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* stacks = (char*)mmap(nullptr, kMaxThreads * (kStack + 4096), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (state.shared == MAP_FAILED || stacks == MAP_FAILED) return false;
  for (int i = 0; i < kMaxThreads; i++) {
    fibers[i].number = i;
    fibers[i].stack = stacks + i * (kStack + 4096) + 4096;
    mprotect(fibers[i].stack - 4096, 4096, PROT_NONE);
  }
  if (state.random == 0) {
    const char* seed = getenv("PIPETRAIN_EMULATION_SEED");
    state.random = (seed ? strtoull(seed, nullptr, 10) : 1) * 0x9e3779b97f4a7c15ull | 1;
  }
  return true;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

static int launch(const Kernel* k, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, void** args) {
  state.kernel = k;
  state.now = nullptr;
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2], blocks = (uint64_t)grid[0] * grid[1] * grid[2];
  for (int i = 0; i < 3; i++) state.grid[i] = grid[i], state.block_size[i] = block[i], state.block[i] = 0;
  if (threads == 0 || threads > (uint64_t)k->max_threads || block[0] != threads) {
    report("a block of %u × %u × %u threads, the kernel is for 1 to %d in one row", block[0], block[1], block[2], k->max_threads);
    return 1;
  }
  if (blocks == 0 || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) {
    report("a grid of %u × %u × %u blocks: none may be 0, the first at most 2^31-1, the others 65535", grid[0], grid[1], grid[2]);
    return 1;
  }
  if (shared_bytes > kMaxShared) {
    report("%u bytes of shared memory, no card gives a block more than %d", shared_bytes, kMaxShared);
    return 1;
  }
  state.args = args;
  state.threads = (int)threads;
  state.dynamic_bytes = shared_bytes;
  begin_launch_memory();
  // All blocks once, in an order without storing one: steps that share no divisor with their number.
  uint64_t at = random_bits() % blocks, step = 1 + random_bits() % blocks;
  while (common_divisor(step, blocks) != 1) step++;
  for (uint64_t i = 0; i < blocks && !state.failed; i++) {
    state.block[0] = (unsigned)(at % grid[0]);
    state.block[1] = (unsigned)(at / grid[0] % grid[1]);
    state.block[2] = (unsigned)(at / grid[0] / grid[1]);
    run_block();
    at = (at + step) % blocks;
  }
  return state.failed;
}

}  // namespace emu

extern "C" const struct emu_kernel* emu_find(const char* name) {
  for (const emu::Kernel* k : emu::kernels()) {
    if (strcmp(k->name, name) == 0) return (const struct emu_kernel*)k;
  }
  return nullptr;
}

extern "C" int emu_launch(const struct emu_kernel* k, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                          void** args, char* error, size_t error_size) {
  std::lock_guard<std::mutex> hold(emu::launch_lock);
  emu::state.error = error;
  emu::state.error_size = error_size;
  emu::state.failed = false;
  if (!emu::prepare()) {
    snprintf(error, error_size, "%s: no memory for the emulation's stacks", k->name);
    return 1;
  }
  return emu::launch((const emu::Kernel*)k, grid, block, shared_bytes, args);
}

extern "C" void emu_seed(unsigned long long seed) {
  std::lock_guard<std::mutex> hold(emu::launch_lock);
  emu::state.random = (seed + 1) * 0x9e3779b97f4a7c15ull | 1;
}
