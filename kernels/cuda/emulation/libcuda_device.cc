// Start, errors, cards and contexts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcuda.h"

namespace cuda {

static int64_t number(const char* name, int64_t otherwise) {
  const char* v = getenv((std::string("PIPETRAIN_EMULATION_") + name).c_str());
  return v && *v ? strtoll(v, nullptr, 10) : otherwise;
}

static Settings read_settings() {
  Settings s;
  s.count = (int)number("GPUS", 1);
  s.memory = number("MEMORY", 1ll << 30);
  s.taken = number("TAKEN", 0);
  s.driver = (int)number("DRIVER", 12080);
  // PTX 8.0 came with CUDA 12.0, and a minor with each of CUDA's.
  s.ptx = (int)number("PTX", s.driver / 1000 < 12 ? 70 + s.driver % 1000 / 10 : (s.driver / 1000 - 4) * 10 + s.driver % 1000 / 10);
  s.major = (int)number("CAPABILITY", 80) / 10;
  s.minor = (int)number("CAPABILITY", 80) % 10;
  s.mismatch = number("MISMATCH", 0) != 0;
  s.busy = number("BUSY", 0) != 0;
  s.mig = number("MIG", 0) != 0;
  s.ecc = number("ECC", 0) != 0;
  s.peers = number("PEERS", 1) != 0;
  s.pools = (int)number("POOLS", 1);
  s.delay = (int)number("DELAY", 150);
  const char* v = getenv("CUDA_VISIBLE_DEVICES");
  if (!v) {
    for (int i = 0; i < s.count; i++) s.visible.push_back(i);
    return s;
  }
  // A number that is none ends the list, as in the driver.
  for (std::string rest = v; !rest.empty();) {
    size_t comma = rest.find(',');
    std::string one = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    char* end;
    long i = strtol(one.c_str(), &end, 10);
    if (end == one.c_str() || i < 0 || i >= s.count) break;
    s.visible.push_back((int)i);
  }
  return s;
}

const Settings& settings() {
  static Settings s = read_settings();
  return s;
}

static std::atomic<bool> initialised;
static std::atomic<int> error;
static std::mutex words_lock;
static std::string reason;
static std::mutex contexts_lock;
static int retained[64];
static thread_local int current = -1;  // device whose context is current

int fail(int r, const std::string& why) {
  int none = 0;
  if (error.compare_exchange_strong(none, r)) {
    std::lock_guard<std::mutex> hold(words_lock);
    reason = why;
  }
  return r;
}

int sticky() { return error; }

static thread_local int refused;
static thread_local std::string refusal;

int refuse(int r, const std::string& why) {
  refusal = why;
  return refused = r;
}

int ready() {
  if (!initialised) return kNotInitialized;
  if (current < 0 || retained[current] == 0) return kInvalidContext;
  return error;
}

struct Name {
  int code;
  const char *name, *text;
};
static const Name names[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {kPeerUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {kInvalidPTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kUnsupportedPTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kECC, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kSystemMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
};

}  // namespace cuda

using namespace cuda;

CUDA_API int cuGetErrorName(int code, const char** name) {
  for (const Name& n : names) {
    if (n.code == code) return *name = n.name, kSuccess;
  }
  return *name = nullptr, kInvalidValue;
}

// Of an error of a kernel the text has the emulation's own words too.
CUDA_API int cuGetErrorString(int code, const char** text) {
  static thread_local std::string whole;
  for (const Name& n : names) {
    if (n.code != code) continue;
    std::lock_guard<std::mutex> hold(words_lock);
    whole = n.text;
    if (code == error && !reason.empty()) whole += " (" + reason + ")";
    if (code == refused) whole += " (" + refusal + ")", refused = 0;
    return *text = whole.c_str(), kSuccess;
  }
  return *text = nullptr, kInvalidValue;
}

CUDA_API int cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  if (settings().mismatch) return kSystemMismatch;
  if (settings().visible.empty()) return kNoDevice;
  initialised = true;
  return kSuccess;
}

CUDA_API int cuDriverGetVersion(int* v) { return *v = settings().driver, kSuccess; }

CUDA_API int cuDeviceGetCount(int* n) {
  if (!initialised) return kNotInitialized;
  return *n = (int)settings().visible.size(), kSuccess;
}

static bool known(int device) { return device >= 0 && device < (int)settings().visible.size(); }

CUDA_API int cuDeviceGet(int* device, int ordinal) {
  if (!initialised) return kNotInitialized;
  if (!known(ordinal)) return kInvalidDevice;
  return *device = ordinal, kSuccess;
}

CUDA_API int cuDeviceGetName(char* name, int length, int device) {
  if (!known(device)) return kInvalidDevice;
  snprintf(name, (size_t)length, "Emulated GPU");
  return kSuccess;
}

CUDA_API int cuDeviceGetUuid(unsigned char* uuid, int device) {
  if (!known(device)) return kInvalidDevice;
  for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0xe0 + i);
  uuid[15] = settings().mig ? 0 : (unsigned char)settings().visible[device];
  return kSuccess;
}

// Parts of a card have numbers of their own.
CUDA_API int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  int r = cuDeviceGetUuid(uuid, device);
  if (r == kSuccess && settings().mig) uuid[0] = 0x41, uuid[15] = (unsigned char)settings().visible[device];
  return r;
}

CUDA_API int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (!known(device)) return kInvalidDevice;
  return *bytes = (size_t)settings().memory, kSuccess;
}

CUDA_API int cuDeviceGetAttribute(int* v, int attribute, int device) {
  if (!known(device)) return kInvalidDevice;
  const int values[][2] = {{1, 1024}, {8, 49152}, {10, 32}, {13, 1000000}, {16, 4}, {20, settings().busy ? 3 : 0}, {33, 1},
                           {34, settings().visible[device]}, {36, 1000000}, {37, 64}, {38, 1 << 20}, {41, 1}, {50, 0},
                           {75, settings().major}, {76, settings().minor}, {97, 166912}, {115, settings().pools != 0}};
  for (auto& one : values) {
    if (one[0] == attribute) return *v = one[1], kSuccess;
  }
  return kInvalidValue;
}

CUDA_API int cuDeviceCanAccessPeer(int* yes, int a, int b) {
  if (!known(a) || !known(b)) return kInvalidDevice;
  return *yes = settings().peers && a != b, kSuccess;
}

CUDA_API int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (!initialised) return kNotInitialized;
  if (!known(device)) return kInvalidDevice;
  if (settings().busy) return kUnavailable;
  if (settings().taken >= settings().memory) return kOutOfMemory;
  std::lock_guard<std::mutex> hold(contexts_lock);
  retained[device]++;
  *context = (void*)(uintptr_t)(0xc0de00 + device);
  return kSuccess;
}

CUDA_API int cuDevicePrimaryCtxRelease_v2(int device) {
  if (!known(device)) return kInvalidDevice;
  {
    std::lock_guard<std::mutex> hold(contexts_lock);
    if (retained[device] == 0) return kInvalidContext;
    if (--retained[device] > 0) return kSuccess;
  }
  drain_all();
  drop_pools();
  free_everything();
  error = 0;  // the error was the context's
  return kSuccess;
}

CUDA_API int cuCtxSetCurrent(void* context) {
  if (!initialised) return kNotInitialized;
  int device = (int)((uintptr_t)context - 0xc0de00);
  if (context && !known(device)) return kInvalidContext;
  current = context ? device : -1;
  return kSuccess;
}

namespace cuda {
int current_device() { return current; }
}

CUDA_API int cuCtxSynchronize() {
  if (int r = ready()) return r;
  drain_all();
  return sticky();
}

CUDA_API int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (int r = ready()) return r;
  *least = 0;
  return *greatest = -5, kSuccess;
}
