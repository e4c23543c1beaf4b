// Every access of a kernel to memory comes here: the kernels are compiled with
// -fsanitize=thread, which puts a call before each, and these calls are ours. Checked are
// bounds, alignment, values that nobody wrote, and accesses of two threads that no barrier orders.
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "internal.h"

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _end[] __attribute__((visibility("hidden")));

namespace emu {

std::vector<Variable> variables;

// Who touched a piece of memory last, each in one word: the launch and the block (device memory) or the
// block and its warp's syncs (shared memory), the thread, and the barriers passed.
struct Cell {  // of two bytes
  uint64_t wrote, read;
};

struct Range {
  uintptr_t base;
  size_t size;
  Cell* cells;
};

static std::mutex ranges_lock;
static std::map<uintptr_t, Range> ranges;  // by base
static const Range* last;
static Cell* shared_cells;
static Variable last_variable;  // of shared memory, that was found

static Cell* new_cells(size_t bytes) {
  void* p = mmap(nullptr, (bytes / 2 + 1) * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : (Cell*)p;
}

void poison(void* p, size_t size) {
  uint16_t* h = (uint16_t*)p;
  std::fill(h, h + size / 2, kPoison);
  if (size % 2) ((char*)p)[size - 1] = (char)(kPoison & 0xff);
}

// The fields of a mark. A field that overflows would make two marks look alike: launches
// and blocks begin anew with clean cells instead.
const int kThreadBits = 11, kEpochBits = 16, kPlaceBits = 24, kSerialBits = 13;
const int kPlaceAt = kEpochBits + kThreadBits, kSerialAt = kPlaceAt + kPlaceBits;
const uint64_t kEpochMask = (1 << kEpochBits) - 1, kPlaceMask = (1ull << kPlaceBits) - 1;
const uint64_t kMany = (1 << kThreadBits) - 1;  // several threads

struct Mark {
  uint64_t place, thread;
};

static Mark unpack(uint64_t m) { return {m >> kPlaceAt & kPlaceMask, m >> kEpochBits & kMany}; }

// Whether what before did comes before what now does, whatever the order of threads. In
// shared memory the serial is the block's, and place the warp's epoch.
static inline bool ordered(uint64_t before, uint64_t now, bool in_shared) {
  uint64_t x = before ^ now;
  if (x >> kSerialAt) return true;
  if (!in_shared && (x >> kPlaceAt & kPlaceMask)) return false;  // blocks have no order
  if (x & kEpochMask) return true;
  if ((x >> kEpochBits & kMany) == 0) return (before >> kEpochBits & kMany) != kMany;
  // Lanes of one warp are ordered by warp_sync as well.
  Mark b = unpack(before), n = unpack(now);
  return in_shared && b.thread != kMany && b.thread / 32 == n.thread / 32 && b.place < n.place;
}

static void race(const void* p, const char* did, const char* other, const Mark& before, bool in_shared) {
  char who[64];
  if (before.thread == kMany) {
    snprintf(who, sizeof who, "several threads");
  } else if (in_shared) {
    snprintf(who, sizeof who, "thread %d", (int)before.thread);
  } else {
    snprintf(who, sizeof who, "thread %d of block number %d", (int)before.thread, (int)before.place);
  }
  fail("race: it %s %p, which %s %s with no barrier between", did, p, who, other);
}

static inline void mark(Cell* cells, size_t from, size_t to, bool write, uint64_t now, bool in_shared, const void* p) {
  for (size_t i = from / 2; i < (to + 1) / 2; i++) {
    Cell* c = &cells[i];
    if (c->wrote && c->wrote != now && !ordered(c->wrote, now, in_shared)) {
      race(p, write ? "writes" : "reads", "wrote", unpack(c->wrote), in_shared);
    }
    if (write) {
      if (c->read && c->read != now && !ordered(c->read, now, in_shared)) race(p, "writes", "read", unpack(c->read), in_shared);
      c->wrote = now;
    } else if (c->read != now) {
      // Readers that a later write may race with count as several; in two blocks as of none.
      uint64_t reader = now;
      if (c->read && !ordered(c->read, now, in_shared)) {
        reader |= kMany << kEpochBits;
        if (!in_shared && ((c->read ^ now) >> kPlaceAt & kPlaceMask)) reader |= kPlaceMask << kPlaceAt;
      }
      c->read = reader;
    }
  }
}

static const Range* find(uintptr_t a) {
  std::lock_guard<std::mutex> hold(ranges_lock);
  auto it = ranges.upper_bound(a);
  if (it == ranges.begin()) return nullptr;
  const Range* r = &std::prev(it)->second;
  if (a - r->base >= r->size) return nullptr;
  return last = r;
}

static void outside(const void* p, size_t size, bool write) {
  const char* verb = write ? "writes" : "reads";
  uintptr_t a = (uintptr_t)p;
  if (a - (uintptr_t)state.shared < (size_t)kMaxShared + 4096) {
    size_t at = a - (uintptr_t)state.shared;
    for (size_t i = variables.size(); i-- > 0;) {
      const Variable& v = variables[i];
      if (at >= v.at) fail("%s %zu bytes of shared memory, %zd past the start of %s, which has %zu", verb, size, at - v.at, v.name, v.size);
    }
  }
  std::unique_lock<std::mutex> hold(ranges_lock);
  auto it = ranges.upper_bound(a);
  if (it != ranges.begin()) {
    Range r = std::prev(it)->second;
    if (a - r.base < r.size + (1 << 20)) {
      hold.unlock();
      fail("%s %zu bytes at %p, %zu past the start of an allocation of %zu", verb, size, p, (size_t)(a - r.base), r.size);
    }
  }
  if (it != ranges.end() && it->second.base - a < (1 << 20)) {
    Range r = it->second;
    hold.unlock();
    fail("%s %zu bytes at %p, %zu before an allocation of %zu", verb, size, p, (size_t)(r.base - a), r.size);
  }
  hold.unlock();
  fail("%s %zu bytes at %p, where no memory of the device is", verb, size, p);
}

static inline void unwritten(const void* p, size_t size) {
  const uint16_t* h = (const uint16_t*)p;
  bool bad = false;
  if (size == 2) bad = h[0] == kPoison;
  for (size_t i = 0; i + 1 < size / 2; i += 2) bad = bad || (h[i] == kPoison && h[i + 1] == kPoison);
  if (bad) fail("reads %zu bytes at %p that nobody wrote", size, p);
}

static inline void check(const void* p, size_t size, bool write) {
  Fiber* f = state.now;
  uintptr_t a = (uintptr_t)p;
  uint64_t now = (uint64_t)f->number << kEpochBits | (state.epoch & kEpochMask);
  size_t at = a - (uintptr_t)state.shared;
  if (at < (size_t)kMaxShared + 4096) {
    const Variable* in = at - last_variable.at < last_variable.size ? &last_variable : nullptr;
    for (size_t i = 0; !in && i < variables.size(); i++) {
      const Variable& v = variables[i];
      if (at - v.at < v.size) in = &(last_variable = v);
    }
    if (!in || at + size > in->at + in->size) outside(p, size, write);
    now |= state.block_serial << kSerialAt | (uint64_t)warps[f->number / 32].epoch << kPlaceAt;
    mark(shared_cells, at, at + size, write, now, true, p);
  } else {
    const Range* r = last && a - last->base < last->size ? last : find(a);
    if (!r) {
      // Constants of the kernel itself.
      if (!write && a >= (uintptr_t)__ehdr_start && a < (uintptr_t)_end) return;
      outside(p, size, write);
    }
    if (a + size > r->base + r->size) outside(p, size, write);
    uint64_t place = ((uint64_t)state.block[2] * state.grid[1] + state.block[1]) * state.grid[0] + state.block[0];
    now |= (uint64_t)state.launch_serial << kSerialAt | (place & kPlaceMask) << kPlaceAt;
    if (r->cells) mark(r->cells, a - r->base, a - r->base + size, write, now, false, p);
  }
  if (!write) unwritten(p, size);
}

static inline bool local(const void* p) { return !state.now || (uintptr_t)p - (uintptr_t)state.now->stack < kStack; }

void access(const void* p, size_t size, bool write) {
  if (!local(p)) check(p, size, write);
}

void begin_launch_memory() {
  last = nullptr;
  if (++state.launch_serial >> kSerialBits) {
    std::lock_guard<std::mutex> hold(ranges_lock);
    for (auto& r : ranges) {
      if (r.second.cells) madvise(r.second.cells, (r.second.size / 2 + 1) * sizeof(Cell), MADV_DONTNEED);
    }
    state.launch_serial = 1;
  }
}

void begin_block_memory() {
  last_variable = {};
  if (!shared_cells) shared_cells = new_cells(kMaxShared + 4096);
  if (++state.block_serial >> kSerialBits) {
    madvise(shared_cells, ((kMaxShared + 4096) / 2 + 1) * sizeof(Cell), MADV_DONTNEED);
    state.block_serial = 1;
  }
}

// The variable of that name and line: laid out when the block first comes by.
void* shared(const char* name, int line, size_t size) {
  for (const Variable& v : variables) {
    if (v.line == line && v.name == name) return state.shared + v.at;
  }
  size_t at = state.shared_used;
  state.shared_used = (at + size + 127) / 128 * 128 + 128;  // a gap, so that a step outside is seen
  if (at + size > kMaxShared) fail("more than %d bytes of shared memory", kMaxShared);
  variables.push_back({name, line, at, size});
  poison(state.shared + at, size);
  return state.shared + at;
}

void* dynamic_shared() { return state.shared; }

static void aligned(const void* p, size_t size, const char* verb) {
  if ((uintptr_t)p % size != 0) fail("%s %zu bytes at %p, which is not aligned to them", verb, size, p);
}

void read(void* to, const void* p, size_t size) {
  aligned(p, size, "reads");
  access(p, size, false);
  memcpy(to, p, size);
}

void write(void* p, const void* from, size_t size) {
  aligned(p, size, "writes");
  access(p, size, true);
  memcpy(p, from, size);
}

// A copy under way: its destination counts as unwritten until it is waited for, since
// it may come at any time between.
void cp_async(void* to, const void* from, int bytes, bool exists) {
  aligned(to, bytes, "copies to");
  aligned(from, bytes, "copies from");
  if ((char*)to < state.shared || (char*)to >= state.shared + kMaxShared) fail("copies to %p, which is not shared memory", to);
  if (exists) access(from, bytes, false);
  access(to, bytes, true);
  poison(to, bytes);
  state.now->copies.push_back({to, from, bytes, exists, state.now->groups});
}

void cp_async_commit() { state.now->groups++; }

void cp_async_wait(int pending) {
  std::vector<Copy>& all = state.now->copies;
  size_t kept = 0;
  for (const Copy& c : all) {
    if (c.group >= state.now->groups - pending) {
      all[kept++] = c;
      continue;
    }
    access(c.to, c.bytes, true);
    if (c.exists) {
      memcpy(c.to, c.from, c.bytes);
    } else {
      memset(c.to, 0, c.bytes);
    }
  }
  all.resize(kept);
}

void atomic_min(unsigned long long* p, unsigned long long v) {
  aligned(p, 8, "updates");
  const Range* r = find((uintptr_t)p);
  if (!r || (uintptr_t)p + 8 > r->base + r->size) outside(p, 8, true);
  if (v < *p) *p = v;
}

}  // namespace emu

// The calls that g++ -fsanitize=thread puts before each access. The real ones belong to
// a library that is not linked.
static inline void hook(const void* p, size_t size, bool write) {
  if (emu::local(p)) return;
  if ((uintptr_t)p % size != 0) emu::aligned(p, size, write ? "writes" : "reads");
  emu::check(p, size, write);
}

#define HOOKS(size)                                                                   \
  extern "C" void __tsan_read##size(void* p) { hook(p, size, false); }                \
  extern "C" void __tsan_write##size(void* p) { hook(p, size, true); }                \
  extern "C" void __tsan_volatile_read##size(void* p) { hook(p, size, false); }       \
  extern "C" void __tsan_volatile_write##size(void* p) { hook(p, size, true); }       \
  extern "C" void __tsan_unaligned_read##size(void* p) { hook(p, size, false); }      \
  extern "C" void __tsan_unaligned_write##size(void* p) { hook(p, size, true); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
extern "C" void __tsan_read_range(void* p, long size) { emu::access(p, (size_t)size, false); }
extern "C" void __tsan_write_range(void* p, long size) { emu::access(p, (size_t)size, true); }
extern "C" void __tsan_init() {}

extern "C" void emu_alloc_range(void* base, size_t size) {
  emu::poison(base, size);
  std::lock_guard<std::mutex> hold(emu::ranges_lock);
  emu::ranges[(uintptr_t)base] = {(uintptr_t)base, size, emu::new_cells(size)};
}

extern "C" void emu_free_range(void* base) {
  std::lock_guard<std::mutex> idle(emu::launch_lock);  // no kernel looks at it
  std::lock_guard<std::mutex> hold(emu::ranges_lock);
  auto it = emu::ranges.find((uintptr_t)base);
  if (it == emu::ranges.end()) return;
  if (it->second.cells) munmap(it->second.cells, (it->second.size / 2 + 1) * sizeof(emu::Cell));
  emu::last = nullptr;
  emu::ranges.erase(it);
}
