// Memory of the card, page-locked host memory, copies, and memory shared between processes.
// Each allocation is a memory file, which other processes open through /proc; pages around it are not
// mapped. Copies are checked when they are called: what lies outside of an allocation is refused.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "libcuda.h"

namespace cuda {

int current_device();

struct Block {
  size_t size;
  char* map;       // with the pages around
  size_t mapped;
  int fd;          // -1: imported, or of the host
  bool imported;
  unsigned long id;
  bool of_pool;
};

static std::mutex blocks_lock;
static std::map<uintptr_t, Block> device, host, hidden;
static int64_t used;
static unsigned long next_id = 1;

static bool inside(const std::map<uintptr_t, Block>& all, uintptr_t p, size_t size) {
  auto it = all.upper_bound(p);
  if (it == all.begin()) return false;
  --it;
  return p - it->first <= it->second.size && size <= it->second.size - (p - it->first);
}

bool on_device(uintptr_t p, size_t size) {
  std::lock_guard<std::mutex> hold(blocks_lock);
  return inside(device, p, size);
}

bool locked(const void* p, size_t size) {
  std::lock_guard<std::mutex> hold(blocks_lock);
  return inside(host, (uintptr_t)p, size);
}

// Maps size bytes of fd, or anonymous memory, between two pages that are not there. The end of the
// block lies at the second one, to 256 bytes.
static char* map_between(int fd, size_t size, char** map, size_t* mapped) {
  size_t page = 4096, body = (size + page - 1) / page * page;
  *mapped = body + 2 * page;
  *map = (char*)mmap(nullptr, *mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*map == MAP_FAILED) return nullptr;
  void* p = mmap(*map + page, body, PROT_READ | PROT_WRITE, MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED), fd, 0);
  if (p == MAP_FAILED) return munmap(*map, *mapped), nullptr;
  return *map + page + (body - (size + 255) / 256 * 256);
}

static void drop(Block& b) {
  munmap(b.map, b.mapped);
  if (b.fd >= 0) close(b.fd);
}

// The memory of an allocation, which other processes may open; 0: there is none.
static uintptr_t map_device(size_t size, bool of_pool) {
  Block b = {size, nullptr, 0, memfd_create("emulated device memory", MFD_CLOEXEC), false, next_id++, of_pool};
  char* base = nullptr;
  if (b.fd >= 0 && ftruncate(b.fd, (off_t)((size + 4095) / 4096 * 4096)) == 0) base = map_between(b.fd, size, &b.map, &b.mapped);
  if (!base) {
    if (b.fd >= 0) close(b.fd);
    return 0;
  }
  device[(uintptr_t)base] = b;
  return (uintptr_t)base;
}

bool take_memory(uint64_t size) {
  std::lock_guard<std::mutex> hold(blocks_lock);
  if ((int64_t)size > settings().memory - settings().taken - used) return false;
  used += (int64_t)size;
  return true;
}

void give_back_memory(uint64_t size) {
  std::lock_guard<std::mutex> hold(blocks_lock);
  used -= (int64_t)size;
}

uintptr_t map_piece(size_t size) {
  std::lock_guard<std::mutex> hold(blocks_lock);
  return map_device(size, true);
}

void hide_piece(uintptr_t p) {
  std::lock_guard<std::mutex> hold(blocks_lock);
  hidden[p] = device[p];
  device.erase(p);
}

void unmap_piece(uintptr_t p) {
  emu_free_range((void*)p);
  std::lock_guard<std::mutex> hold(blocks_lock);
  drop(hidden[p]);
  hidden.erase(p);
}

bool is_hidden(uintptr_t p) {
  std::lock_guard<std::mutex> hold(blocks_lock);
  return inside(hidden, p, 0);
}

void free_everything() {
  std::lock_guard<std::mutex> hold(blocks_lock);
  for (auto* all : {&device, &hidden}) {
    for (auto& b : *all) {
      if (!b.second.imported) emu_free_range((void*)b.first);
      drop(b.second);
    }
    all->clear();
  }
  used = 0;
}

}  // namespace cuda

using namespace cuda;

CUDA_API int cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (int r = ready()) return r;
  std::lock_guard<std::mutex> hold(blocks_lock);
  *total = (size_t)settings().memory;
  *free = (size_t)(settings().memory - settings().taken - used);
  return kSuccess;
}

CUDA_API int cuMemAlloc_v2(uintptr_t* p, size_t size) {
  if (int r = ready()) return r;
  if (size == 0) return kInvalidValue;
  std::lock_guard<std::mutex> hold(blocks_lock);
  if ((int64_t)size > settings().memory - settings().taken - used) return kOutOfMemory;
  if (!(*p = map_device(size, false))) return kOutOfMemory;
  used += (int64_t)size;
  emu_alloc_range((void*)*p, size);
  return kSuccess;
}

// Waits for all work, as the driver does.
CUDA_API int cuMemFree_v2(uintptr_t p) {
  if (int r = ready()) return r;
  drain_all();
  std::lock_guard<std::mutex> hold(blocks_lock);
  auto it = device.find(p);
  if (it == device.end() || it->second.imported || it->second.of_pool) return kInvalidValue;
  emu_free_range((void*)p);
  used -= (int64_t)it->second.size;
  drop(it->second);
  device.erase(it);
  return sticky();
}

CUDA_API int cuMemHostAlloc(void** p, size_t size, unsigned flags) {
  if (int r = ready()) return r;
  if (size == 0 || flags > 7) return kInvalidValue;
  Block b = {size, nullptr, 0, -1, false, 0, false};
  char* base = map_between(-1, size, &b.map, &b.mapped);
  if (!base) return kOutOfMemory;
  std::lock_guard<std::mutex> hold(blocks_lock);
  host[(uintptr_t)base] = b;
  return *p = base, kSuccess;
}

CUDA_API int cuMemFreeHost(void* p) {
  if (int r = ready()) return r;
  drain_all();
  std::lock_guard<std::mutex> hold(blocks_lock);
  auto it = host.find((uintptr_t)p);
  if (it == host.end()) return kInvalidValue;
  drop(it->second);
  host.erase(it);
  return kSuccess;
}

CUDA_API int cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t size, void* stream) {
  if (!on_device(to, size) || !locked(from, size)) return kInvalidValue;
  return submit(stream, [=] { return memcpy((void*)to, from, size), kSuccess; }, {to});
}

CUDA_API int cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t size, void* stream) {
  if (!on_device(from, size) || !locked(to, size)) return kInvalidValue;
  return submit(stream, [=] { return memcpy(to, (void*)from, size), kSuccess; }, {from});
}

CUDA_API int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t size, void* stream) {
  if (!on_device(from, size) || !on_device(to, size)) return kInvalidValue;
  if (size > 0 && to < from + size && from < to + size) return kInvalidValue;
  return submit(stream, [=] { return memcpy((void*)to, (void*)from, size), kSuccess; }, {to, from});
}

CUDA_API int cuMemsetD8Async(uintptr_t to, unsigned char v, size_t size, void* stream) {
  if (!on_device(to, size)) return kInvalidValue;
  return submit(stream, [=] { return memset((void*)to, v, size), kSuccess; }, {to});
}

// Memory of other processes.

struct Handle {  // 64 bytes, passed by value
  char magic[8];
  int pid, fd, gpu, pad;
  size_t size;
  unsigned long id;
  char rest[24];
};
static_assert(sizeof(Handle) == 64, "a memory handle has 64 bytes");
static const char kMagic[8] = {'e', 'm', 'u', 'i', 'p', 'c', '1', 0};

CUDA_API int cuIpcGetMemHandle(Handle* h, uintptr_t p) {
  if (int r = ready()) return r;
  std::lock_guard<std::mutex> hold(blocks_lock);
  auto it = device.find(p);
  if (it == device.end() || it->second.imported || it->second.of_pool) return kInvalidValue;
  memset(h, 0, sizeof *h);
  memcpy(h->magic, kMagic, 8);
  h->pid = getpid();
  h->fd = it->second.fd;
  h->gpu = settings().visible[(size_t)current_device()];
  h->size = it->second.size;
  h->id = it->second.id;
  return kSuccess;
}

CUDA_API int cuIpcOpenMemHandle_v2(uintptr_t* p, Handle h, unsigned flags) {
  if (int r = ready()) return r;
  if (memcmp(h.magic, kMagic, 8) != 0 || flags != 1) return kInvalidValue;
  if (h.pid == getpid()) return kInvalidContext;  // one's own memory is not imported
  if (h.gpu != settings().visible[(size_t)current_device()] && !settings().peers) return kPeerUnsupported;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
  Block b = {h.size, nullptr, 0, open(path, O_RDWR | O_CLOEXEC), true, 0, false};
  if (b.fd < 0) return kInvalidValue;
  struct stat st;
  char* base = nullptr;
  if (fstat(b.fd, &st) == 0 && (size_t)st.st_size >= h.size) base = map_between(b.fd, h.size, &b.map, &b.mapped);
  if (!base) return close(b.fd), kInvalidValue;
  std::lock_guard<std::mutex> hold(blocks_lock);
  device[(uintptr_t)base] = b;
  return *p = (uintptr_t)base, kSuccess;
}

CUDA_API int cuIpcCloseMemHandle(uintptr_t p) {
  if (int r = ready()) return r;
  drain_all();
  std::lock_guard<std::mutex> hold(blocks_lock);
  auto it = device.find(p);
  if (it == device.end() || !it->second.imported) return kInvalidValue;
  drop(it->second);
  device.erase(it);
  return kSuccess;
}
