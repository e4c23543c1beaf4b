// Modules: of the PTX the stand-in reads the version, the target, and the kernels with
// their parameters; what runs is the kernel of that name compiled for the host.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <set>

#include "libcuda.h"

namespace cuda {

struct Function {
  std::string name;
  const emu_kernel* kernel;
  int max_shared;
};

struct Module {
  std::map<std::string, std::vector<unsigned>> entries;  // sizes of the parameters
  std::map<std::string, std::unique_ptr<Function>> functions;
};

static std::mutex modules_lock;
static std::set<void*> modules, functions;

// The text's sizes of one kernel's parameters, between the parentheses from at.
static std::vector<unsigned> parameters(const std::string& text, size_t at) {
  std::vector<unsigned> sizes;
  size_t end = text.find(')', at);
  for (size_t p = text.find(".param", at); p < end; p = text.find(".param", p + 1)) {
    size_t q = p + 6;
    unsigned size = 0, count = 1;
    while (q < end && text[q] != ',') {
      if (text.compare(q, 6, ".align") == 0) {  // its number is no type
        q += 6;
        while (q < end && (text[q] == ' ' || (text[q] >= '0' && text[q] <= '9'))) q++;
        continue;
      }
      if (text[q] == '.' && strchr("ubsf", text[q + 1]) && text[q + 2] >= '0' && text[q + 2] <= '9') size = (unsigned)atoi(&text[q + 2]) / 8;
      if (text[q] == '[') count = (unsigned)atoi(&text[q + 1]);
      q++;
    }
    sizes.push_back(size * count);
  }
  return sizes;
}

static int parse(const std::string& text, Module* m, std::string* log) {
  const Settings& s = settings();
  size_t v = text.find(".version "), t = text.find(".target sm_");
  if (v == std::string::npos || t == std::string::npos) {
    *log = "ptxas fatal: no .version or no .target";
    return kInvalidPTX;
  }
  int major = 0, minor = 0, target = 0;
  char suffix = 0;
  sscanf(text.c_str() + v, ".version %d.%d", &major, &minor);
  sscanf(text.c_str() + t, ".target sm_%d%c", &target, &suffix);
  if (major * 10 + minor > s.ptx) {
    char words[160];
    snprintf(words, sizeof words, "ptxas fatal: unsupported .version %d.%d; current version is '%d.%d'", major, minor, s.ptx / 10, s.ptx % 10);
    *log = words;
    return kUnsupportedPTX;
  }
  int own = s.major * 10 + s.minor;
  if (target > own || (suffix == 'a' && target != own)) return kNoBinary;
  for (size_t p = text.find(".entry "); p != std::string::npos; p = text.find(".entry ", p + 1)) {
    size_t from = p + 7, open = text.find_first_of("({ \n", from);
    if (open == std::string::npos) break;
    m->entries[text.substr(from, open - from)] = text[open] == '(' ? parameters(text, open) : std::vector<unsigned>();
  }
  return kSuccess;
}

}  // namespace cuda

using namespace cuda;

CUDA_API int cuModuleLoadDataEx(void** module, const void* image, unsigned count, const int* options, void** values) {
  if (int r = ready()) return r;
  char* log = nullptr;
  size_t log_size = 0;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == 5) log = (char*)values[i];
    if (options[i] == 6) log_size = (size_t)values[i];
  }
  std::unique_ptr<Module> m(new Module);
  std::string words;
  int r = parse((const char*)image, m.get(), &words);
  if (log && log_size > 0) snprintf(log, log_size, "%s", words.c_str());
  if (r) return r;
  std::lock_guard<std::mutex> hold(modules_lock);
  modules.insert(m.get());
  return *module = m.release(), kSuccess;
}

CUDA_API int cuModuleUnload(void* module) {
  if (int r = ready()) return r;
  drain_all();
  std::lock_guard<std::mutex> hold(modules_lock);
  if (!modules.erase(module)) return kInvalidHandle;
  for (auto& f : ((Module*)module)->functions) functions.erase(f.second.get());
  delete (Module*)module;
  return kSuccess;
}

CUDA_API int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (int r = ready()) return r;
  std::lock_guard<std::mutex> hold(modules_lock);
  if (!modules.count(module)) return kInvalidHandle;
  Module* m = (Module*)module;
  auto entry = m->entries.find(name);
  const emu_kernel* k = emu_find(name);
  if (entry == m->entries.end() || !k) return kNotFound;
  bool same = (int)entry->second.size() == k->params;
  for (int i = 0; same && i < k->params; i++) same = entry->second[(size_t)i] == k->sizes[i];
  if (!same) {
    fprintf(stderr, "emulated libcuda: the PTX of %s has other parameters than its source: it is out of date\n", name);
    return kInvalidPTX;
  }
  auto& f = m->functions[name];
  if (!f) {
    f.reset(new Function{name, k, 49152});
    functions.insert(f.get());
  }
  return *function = f.get(), kSuccess;
}

static Function* function_of(void* handle) {
  std::lock_guard<std::mutex> hold(modules_lock);
  return functions.count(handle) ? (Function*)handle : nullptr;
}

CUDA_API int cuFuncSetAttribute(void* handle, int attribute, int v) {
  if (int r = ready()) return r;
  Function* f = function_of(handle);
  if (!f) return kInvalidHandle;
  if (attribute != 8 || v < 0 || v > 166912) return kInvalidValue;
  return f->max_shared = v, kSuccess;
}

CUDA_API int cuFuncGetAttribute(int* v, int attribute, void* handle) {
  if (int r = ready()) return r;
  Function* f = function_of(handle);
  if (!f) return kInvalidHandle;
  switch (attribute) {
    case 0: return *v = f->kernel->max_threads, kSuccess;
    case 1: case 3: return *v = 0, kSuccess;  // static shared and local memory
    case 4: return *v = 32, kSuccess;         // registers
    case 8: return *v = f->max_shared, kSuccess;
  }
  return kInvalidValue;
}

CUDA_API int cuLaunchKernel(void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, void* stream, void** args, void** extra) {
  if (int r = ready()) return r;
  Function* f = function_of(handle);
  if (!f) return kInvalidHandle;
  if (extra || gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0) return kInvalidValue;
  if (gx > 0x7fffffff || gy > 65535 || gz > 65535 || shared > (unsigned)f->max_shared) return kInvalidValue;
  if ((uint64_t)bx * by * bz > (uint64_t)f->kernel->max_threads) return kOutOfResources;
  // The arguments are copied before the call returns: eight bytes each are enough for all that there are.
  auto values = std::make_shared<std::vector<uint64_t>>((size_t)f->kernel->params + 1);
  for (int i = 0; i < f->kernel->params; i++) {
    if (f->kernel->sizes[i] > 8) return kInvalidValue;
    memcpy(&(*values)[(size_t)i], args[i], f->kernel->sizes[i]);
  }
  const emu_kernel* k = f->kernel;
  std::vector<uintptr_t> given;
  for (int i = 0; i < k->params; i++) {
    if (k->sizes[i] == 8) given.push_back((*values)[(size_t)i]);
  }
  return submit(stream, [=]() -> int {
    std::vector<void*> pointers;
    for (uint64_t& v : *values) pointers.push_back(&v);
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    char words[500] = "";
    if (settings().ecc) return fail(kECC, "");
    if (emu_launch(k, grid, block, shared, pointers.data(), words, sizeof words) != 0) return fail(kIllegalAddress, words);
    return kSuccess;
  }, given);
}
