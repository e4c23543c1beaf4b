// Memory pools: memory that is allocated and freed in the order of a stream. A driver lets mistakes in that order
// pass most of the time; here each call says what the memory is ordered with, whatever the streams happen to do.
// Of each stream is known how much of the others' work it comes behind (by events, and by the host, which waited);
// operations name the pool memory that they are given.
#include <string.h>

#include <map>

#include "libcuda.h"

namespace cuda {

const uint64_t kGrain = 2 << 20;  // a pool grows and shrinks by this

struct Pool {
  uint64_t keep = 0, reserved = 0, reserved_high = 0, used = 0, used_high = 0;
  std::set<uintptr_t> live;
};

struct Piece {  // of a pool, freed ones too until they are performed
  Pool* pool;
  size_t size;
  unsigned long by;  // stream, by number
  uint64_t since;    // the place of its allocation in that stream
  Order uses;        // the last place of each stream that uses it
};

static std::mutex pools_lock;
static std::set<void*> pools;
static std::map<uintptr_t, Piece> pieces;
static Order host_saw;  // what the host has waited for; threads of the host count as one

static void join(Order& to, const Order& from) {
  for (auto& one : from) to[one.first] = std::max(to[one.first], one.second);
}

static uint64_t reached(const Order& o, unsigned long stream) {
  auto it = o.find(stream);
  return it == o.end() ? 0 : it->second;
}

static std::map<uintptr_t, Piece>::iterator piece_of(uintptr_t p) {
  auto it = pieces.upper_bound(p);
  if (it == pieces.begin()) return pieces.end();
  --it;
  return p - it->first < it->second.size ? it : pieces.end();
}

// Puts an operation that is given these addresses into the stream's order, or says why it cannot be.
int order(Stream* s, const std::vector<uintptr_t>& given) {
  std::lock_guard<std::mutex> hold(pools_lock);
  join(s->order, host_saw);
  uint64_t place = ++s->order[s->number];
  for (uintptr_t p : given) {
    if (is_hidden(p)) return refuse(kInvalidValue, "memory of a pool is used after it was freed");
    auto it = piece_of(p);
    if (it == pieces.end()) continue;
    Piece& piece = it->second;
    if (reached(s->order, piece.by) < piece.since) return refuse(kInvalidValue, "memory of a pool is used in a stream that is not behind its allocation");
    piece.uses[s->number] = place;
  }
  return kSuccess;
}

Order order_of(Stream* s) {
  std::lock_guard<std::mutex> hold(pools_lock);
  join(s->order, host_saw);
  return s->order;
}

void order_after(Stream* s, const Order& o) {
  std::lock_guard<std::mutex> hold(pools_lock);
  join(s->order, o);
}

// The host has waited: what pools have beyond their threshold goes back.
void host_waited(const Order& o) {
  std::lock_guard<std::mutex> hold(pools_lock);
  join(host_saw, o);
  for (void* p : pools) {
    Pool* pool = (Pool*)p;
    uint64_t least = (std::max(pool->used, pool->keep) + kGrain - 1) / kGrain * kGrain;
    if (pool->keep < UINT64_MAX - kGrain && pool->reserved > least) give_back_memory(pool->reserved - least), pool->reserved = least;
  }
}

void drop_pools() {
  std::lock_guard<std::mutex> hold(pools_lock);
  for (void* p : pools) delete (Pool*)p;
  pools.clear();
  pieces.clear();
}

}  // namespace cuda

using namespace cuda;

struct PoolProps {  // CUmemPoolProps, 88 bytes
  int alloc_type, handle_types, location_type, location_id;
  void* security;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};
static_assert(sizeof(PoolProps) == 88, "CUmemPoolProps has 88 bytes");

CUDA_API int cuMemPoolCreate(void** pool, const PoolProps* props) {
  if (int r = ready()) return r;
  if (settings().pools != 1) return kNotSupported;
  // Page-locked memory of a device that no other process sees.
  if (props->alloc_type != 1 || props->handle_types != 0 || props->location_type != 1) return kInvalidValue;
  if (props->location_id < 0 || props->location_id >= (int)settings().visible.size() || props->max_size || props->usage) return kInvalidValue;
  std::lock_guard<std::mutex> hold(pools_lock);
  Pool* p = new Pool;
  pools.insert(p);
  return *pool = p, kSuccess;
}

// A driver lets a pool live on until its memory is freed; nothing would tell of the leak.
CUDA_API int cuMemPoolDestroy(void* handle) {
  if (int r = ready()) return r;
  std::lock_guard<std::mutex> hold(pools_lock);
  if (!pools.count(handle)) return kInvalidHandle;
  Pool* p = (Pool*)handle;
  if (!p->live.empty()) return refuse(kInvalidValue, std::to_string(p->live.size()) + " pieces of the pool were not freed");
  if (p->used > 0) return refuse(kInvalidValue, "memory of the pool is still being freed");
  give_back_memory(p->reserved);
  pools.erase(handle);
  delete p;
  return kSuccess;
}

enum { kReuseFirst = 1, kReuseLast = 3, kReleaseThreshold = 4, kReservedNow = 5, kReservedHigh = 6, kUsedNow = 7, kUsedHigh = 8 };

CUDA_API int cuMemPoolSetAttribute(void* handle, int attribute, void* value) {
  if (int r = ready()) return r;
  std::lock_guard<std::mutex> hold(pools_lock);
  if (!pools.count(handle)) return kInvalidHandle;
  if (attribute >= kReuseFirst && attribute <= kReuseLast) return kSuccess;  // no memory is used again here
  if (attribute != kReleaseThreshold) return kInvalidValue;
  ((Pool*)handle)->keep = *(uint64_t*)value;
  return kSuccess;
}

CUDA_API int cuMemPoolGetAttribute(void* handle, int attribute, void* value) {
  if (int r = ready()) return r;
  std::lock_guard<std::mutex> hold(pools_lock);
  if (!pools.count(handle)) return kInvalidHandle;
  Pool* p = (Pool*)handle;
  const uint64_t values[] = {p->keep, p->reserved, p->reserved_high, p->used, p->used_high};
  if (attribute < kReleaseThreshold || attribute > kUsedHigh) return kInvalidValue;
  *(uint64_t*)value = values[attribute - kReleaseThreshold];
  return kSuccess;
}

CUDA_API int cuMemPoolTrimTo(void* handle, size_t keep) {
  if (int r = ready()) return r;
  std::lock_guard<std::mutex> hold(pools_lock);
  if (!pools.count(handle)) return kInvalidHandle;
  Pool* p = (Pool*)handle;
  uint64_t least = (std::max(p->used, (uint64_t)keep) + kGrain - 1) / kGrain * kGrain;
  if (p->reserved > least) give_back_memory(p->reserved - least), p->reserved = least;
  return kSuccess;
}

CUDA_API int cuMemAllocFromPoolAsync(uintptr_t* address, size_t size, void* handle, void* stream) {
  if (int r = ready()) return r;
  Stream* s = stream_of(stream);
  if (!s || size == 0) return s ? kInvalidValue : kInvalidHandle;
  // Captured, it would be an allocation of the graph's: pipetrain makes none.
  if (capturing(s)) return refuse(kCaptureUnsupported, "an allocation from a pool in a captured stream");
  uintptr_t p;
  {
    std::lock_guard<std::mutex> hold(pools_lock);
    if (!pools.count(handle)) return kInvalidHandle;
    Pool* pool = (Pool*)handle;
    uint64_t whole = (size + 511) / 512 * 512;
    if (pool->used + whole > pool->reserved) {
      uint64_t more = (pool->used + whole - pool->reserved + kGrain - 1) / kGrain * kGrain;
      if (!take_memory(more)) return kOutOfMemory;
      pool->reserved += more;
      pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
    }
    if (!(p = map_piece(size))) return kOutOfMemory;
    pool->used += whole;
    pool->used_high = std::max(pool->used_high, pool->used);
    pool->live.insert(p);
    join(s->order, host_saw);
    pieces[p] = {pool, size, s->number, reached(s->order, s->number) + 1, {}};
  }
  *address = p;
  return submit(stream, [p, size] { return emu_alloc_range((void*)p, size), kSuccess; }, {p});
}

CUDA_API int cuMemFreeAsync(uintptr_t p, void* stream) {
  if (int r = ready()) return r;
  Stream* s = stream_of(stream);
  if (!s) return kInvalidHandle;
  if (capturing(s)) return refuse(kCaptureUnsupported, "memory of a pool is freed in a captured stream");
  Pool* pool;
  uint64_t whole;
  {
    std::lock_guard<std::mutex> hold(pools_lock);
    auto it = pieces.find(p);
    if (it == pieces.end()) return refuse(kInvalidValue, "what is freed is no memory of a pool, or was freed");
    join(s->order, host_saw);
    if (reached(s->order, it->second.by) < it->second.since) return refuse(kInvalidValue, "memory of a pool is freed in a stream that is not behind its allocation");
    for (auto& use : it->second.uses) {
      if (use.first != s->number && reached(s->order, use.first) < use.second) return refuse(kInvalidValue, "memory of a pool is freed while another stream may use it");
    }
    pool = it->second.pool;
    whole = (it->second.size + 511) / 512 * 512;
    pool->live.erase(p);
    pieces.erase(it);
  }
  hide_piece(p);  // from the calls that come now; work under way still has it
  return submit(stream, [=] {
    unmap_piece(p);
    std::lock_guard<std::mutex> hold(pools_lock);
    if (pools.count(pool)) pool->used -= whole;
    return kSuccess;
  });
}
