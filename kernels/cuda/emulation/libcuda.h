// The stand-in for libcuda.so.1: the driver's functions that pipetrain uses, for the host's
// processor. It is stricter than a driver: host memory of copies must be page-locked, and streams run
// late by random times, so that work which nobody ordered goes wrong here first.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "emu.h"

#define CUDA_API extern "C" EMU_API

// cuda.h's numbers.
enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNoBinary = 209,
  kECC = 214,
  kPeerUnsupported = 217,
  kInvalidPTX = 218,
  kUnsupportedPTX = 222,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kOutOfResources = 701,
  kLaunchFailed = 719,
  kNotSupported = 801,
  kSystemMismatch = 803,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
};

namespace cuda {

// What the stand-in is, by the environment's PIPETRAIN_EMULATION_*.
struct Settings {
  int count;          // _GPUS: cards in the machine, 1
  int64_t memory;     // _MEMORY: bytes of each card, 1 GiB
  int64_t taken;      // _TAKEN: of these, bytes that other processes hold
  int driver;         // _DRIVER: the CUDA that the driver is for, 12080
  int major, minor;   // _CAPABILITY: 80 is 8.0
  bool mismatch;      // _MISMATCH: the kernel's module is of another version
  bool mig;           // _MIG: what is visible are parts of one card
  bool ecc;           // _ECC: the first kernel meets memory that cannot be corrected
  bool busy;          // _BUSY: the card is in exclusive use by another process
  bool peers;         // _PEERS=0: cards do not reach each other
  int pools;          // _POOLS=0: no memory pools; 2: the card says it has some, and the driver makes none
  int ptx;            // _PTX: the newest PTX that is compiled, 80 is 8.0; by the driver's CUDA
  int delay;          // _DELAY: the longest random delay of a stream's operation, in µs, 150
  std::vector<int> visible;  // CUDA_VISIBLE_DEVICES
};
const Settings& settings();

// fail makes r the error of all later calls, as an error of a kernel is on a card.
int fail(int r, const std::string& why);
int sticky();
// refuse makes why part of the text of r, which the call returns.
int refuse(int r, const std::string& why);
// ready says why a call cannot be: no cuInit, no current context, an earlier error.
int ready();

// Order is how far a stream is behind the work of each: by the number of its stream, the place in it.
typedef std::map<unsigned long, uint64_t> Order;

// Graph is captured work.
struct Op {
  std::function<int()> run;
  std::vector<uintptr_t> given;  // addresses of device memory that it is given
};
struct Graph {
  std::vector<Op> ops;
};

struct Stream {
  std::mutex lock;
  std::condition_variable changed;
  std::deque<Op> todo;
  bool busy = false, stop = false;
  std::unique_ptr<Graph> capture;
  bool spoilt = false;  // the capture
  std::mt19937_64 random;
  std::thread worker;
  unsigned long number;
  Order order;  // libcuda_pool.cc's

  explicit Stream(unsigned long seed);
  ~Stream();
  void run();
  void drain();
};

// stream_of returns the stream of a handle, or a null pointer.
Stream* stream_of(void* handle);
// submit puts work that is given addresses of device memory into a stream, or into its capture.
int submit(void* stream, std::function<int()> run, std::vector<uintptr_t> given = {});
bool capturing(Stream*);
void drain_all();

// What streams are behind, and what the memory of pools is behind (libcuda_pool.cc).
int order(Stream*, const std::vector<uintptr_t>& given);
Order order_of(Stream*);
void order_after(Stream*, const Order&);
void host_waited(const Order&);
void drop_pools();
// The card's memory, for pools (libcuda_memory.cc). A hidden piece is refused by calls and still mapped.
bool take_memory(uint64_t size);
void give_back_memory(uint64_t size);
uintptr_t map_piece(size_t size);
void hide_piece(uintptr_t);
void unmap_piece(uintptr_t);
bool is_hidden(uintptr_t);

// Whether [p, p + size) lies in one allocation of the device, or in page-locked memory.
bool on_device(uintptr_t p, size_t size);
bool locked(const void* p, size_t size);
void free_everything();

}  // namespace cuda
