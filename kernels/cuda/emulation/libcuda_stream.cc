// Streams, each with a thread of its own that performs its operations in order and late, and events.
#include <stdlib.h>
#include <string.h>

#include <chrono>

#include "libcuda.h"

namespace cuda {

static std::mutex handles_lock;
static std::set<void*> streams;
static std::atomic<unsigned long> numbers;

Stream::Stream(unsigned long seed) : random(seed), number(++numbers) { worker = std::thread(&Stream::run, this); }

Stream::~Stream() {
  drain();
  {
    std::lock_guard<std::mutex> hold(lock);
    stop = true;
  }
  changed.notify_all();
  worker.join();
}

void Stream::run() {
  std::unique_lock<std::mutex> hold(lock);
  for (;;) {
    while (todo.empty() && !stop) {
      busy = false;
      changed.notify_all();
      changed.wait(hold);
    }
    if (todo.empty()) return;
    Op op = std::move(todo.front());
    todo.pop_front();
    int delay = settings().delay;
    int late = delay > 0 && random() % 4 == 0 ? (int)(random() % (unsigned)delay) : 0;
    hold.unlock();
    if (late > 0) std::this_thread::sleep_for(std::chrono::microseconds(late));
    if (sticky() == 0) op.run();
    op.run = nullptr;  // what it holds is freed outside of the lock
    hold.lock();
  }
}

void Stream::drain() {
  std::unique_lock<std::mutex> hold(lock);
  changed.wait(hold, [&] { return !busy; });
}

Stream* stream_of(void* handle) {
  std::lock_guard<std::mutex> hold(handles_lock);
  return streams.count(handle) ? (Stream*)handle : nullptr;
}

bool capturing(Stream* s) {
  std::lock_guard<std::mutex> hold(s->lock);
  return s->capture != nullptr;
}

int submit(void* handle, std::function<int()> run, std::vector<uintptr_t> given) {
  if (int r = ready()) return r;
  Stream* s = stream_of(handle);
  if (!s) return kInvalidHandle;
  {
    std::lock_guard<std::mutex> hold(s->lock);
    if (s->spoilt) return kCaptureInvalidated;
    if (s->capture) {
      s->capture->ops.push_back({std::move(run), std::move(given)});
      return kSuccess;
    }
    if (int r = order(s, given)) return r;
    s->todo.push_back({std::move(run), {}});
    s->busy = true;
  }
  s->changed.notify_all();
  return kSuccess;
}

void drain_all() {
  std::set<void*> all;
  {
    std::lock_guard<std::mutex> hold(handles_lock);
    all = streams;
  }
  for (void* s : all) {
    Order seen = order_of((Stream*)s);
    ((Stream*)s)->drain();
    host_waited(seen);
  }
}

// Instant is one recording of an event.
struct Instant {
  std::mutex lock;
  std::condition_variable changed;
  bool passed = false;
  Order order;  // of its stream, when it was recorded
  std::chrono::steady_clock::time_point at;

  void pass() {
    {
      std::lock_guard<std::mutex> hold(lock);
      passed = true;
      at = std::chrono::steady_clock::now();
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> hold(lock);
    // After an error nobody passes instants any more.
    while (!passed && sticky() == 0) changed.wait_for(hold, std::chrono::milliseconds(20));
  }
};

struct Event {
  bool timing;
  std::shared_ptr<Instant> last;
};
static std::set<void*> events;

static Event* event_of(void* handle) { return events.count(handle) ? (Event*)handle : nullptr; }

}  // namespace cuda

using namespace cuda;

CUDA_API int cuStreamCreateWithPriority(void** handle, unsigned flags, int priority) {
  if (int r = ready()) return r;
  if (flags > 1 || priority < -5 || priority > 5) return kInvalidValue;
  static unsigned long seed = [] {
    const char* s = getenv("PIPETRAIN_EMULATION_SEED");
    return s ? strtoul(s, nullptr, 10) : 1;
  }();
  std::lock_guard<std::mutex> hold(handles_lock);
  Stream* s = new Stream(++seed);
  streams.insert(s);
  return *handle = s, kSuccess;
}

CUDA_API int cuStreamDestroy_v2(void* handle) {
  {
    std::lock_guard<std::mutex> hold(handles_lock);
    if (!streams.erase(handle)) return kInvalidHandle;
  }
  Order seen = order_of((Stream*)handle);
  delete (Stream*)handle;
  host_waited(seen);
  return kSuccess;
}

// While a stream is captured nothing may wait for it.
static int waitable(Stream* s) {
  std::lock_guard<std::mutex> hold(s->lock);
  if (!s->capture) return kSuccess;
  s->spoilt = true;
  return kCaptureUnsupported;
}

CUDA_API int cuStreamSynchronize(void* handle) {
  if (int r = ready()) return r;
  Stream* s = stream_of(handle);
  if (!s) return kInvalidHandle;
  if (int r = waitable(s)) return r;
  Order seen = order_of(s);
  s->drain();
  host_waited(seen);
  return sticky();
}

CUDA_API int cuStreamWaitEvent(void* stream, void* handle, unsigned flags) {
  if (flags != 0) return kInvalidValue;
  std::shared_ptr<Instant> at;
  {
    std::lock_guard<std::mutex> hold(handles_lock);
    Event* e = event_of(handle);
    if (!e) return kInvalidHandle;
    at = e->last;
  }
#ifdef PIPETRAIN_FORGETS_WAITS  // a binding that does not wait, which the tests must notice
  at = nullptr;
#endif
  if (!at) return ready();
  if (Stream* s = stream_of(stream)) order_after(s, at->order);
  return submit(stream, [at] {
    at->wait();
    return kSuccess;
  });
}

CUDA_API int cuEventCreate(void** handle, unsigned flags) {
  if (int r = ready()) return r;
  if (flags & ~3u) return kInvalidValue;
  Event* e = new Event{!(flags & 2), nullptr};
  std::lock_guard<std::mutex> hold(handles_lock);
  events.insert(e);
  return *handle = e, kSuccess;
}

CUDA_API int cuEventDestroy_v2(void* handle) {
  std::lock_guard<std::mutex> hold(handles_lock);
  if (!events.erase(handle)) return kInvalidHandle;
  delete (Event*)handle;
  return kSuccess;
}

CUDA_API int cuEventRecord(void* handle, void* stream) {
  auto at = std::make_shared<Instant>();
  int r = submit(stream, [at] {
    at->pass();
    return kSuccess;
  });
  if (r) return r;
  if (Stream* s = stream_of(stream)) at->order = order_of(s);
  std::lock_guard<std::mutex> hold(handles_lock);
  Event* e = event_of(handle);
  if (!e) return kInvalidHandle;
  e->last = at;
  return kSuccess;
}

static int look(void* handle, Event** e, std::shared_ptr<Instant>* at) {
  if (int r = ready()) return r;
  std::lock_guard<std::mutex> hold(handles_lock);
  if (!(*e = event_of(handle))) return kInvalidHandle;
  *at = (*e)->last;
  return kSuccess;
}

CUDA_API int cuEventSynchronize(void* handle) {
  Event* e;
  std::shared_ptr<Instant> at;
  if (int r = look(handle, &e, &at)) return r;
  if (at) {
    at->wait();
    host_waited(at->order);
  }
  return sticky();
}

CUDA_API int cuEventElapsedTime(float* ms, void* from, void* to) {
  Event *a, *b;
  std::shared_ptr<Instant> at, until;
  if (int r = look(from, &a, &at)) return r;
  if (int r = look(to, &b, &until)) return r;
  if (!a->timing || !b->timing || !at || !until) return kInvalidHandle;
  std::scoped_lock hold(at->lock, until->lock);
  if (!at->passed || !until->passed) return kNotReady;
  *ms = std::chrono::duration<float, std::milli>(until->at - at->at).count();
  return kSuccess;
}

// Captures. What a captured stream waits for, and instants in it, belong to no other stream: pipetrain
// records single streams.

namespace cuda {
static std::set<void*> graphs, launchable;
}

CUDA_API int cuStreamBeginCapture_v2(void* handle, int mode) {
  if (int r = ready()) return r;
  Stream* s = stream_of(handle);
  if (!s || mode < 0 || mode > 2) return s ? kInvalidValue : kInvalidHandle;
  std::lock_guard<std::mutex> hold(s->lock);
  if (s->capture) return kCaptureUnsupported;
  s->capture.reset(new Graph);
  s->spoilt = false;
  return kSuccess;
}

CUDA_API int cuStreamEndCapture(void* handle, void** graph) {
  *graph = nullptr;
  if (int r = ready()) return r;
  Stream* s = stream_of(handle);
  if (!s) return kInvalidHandle;
  std::unique_ptr<Graph> g;
  bool bad;
  {
    std::lock_guard<std::mutex> hold(s->lock);
    g = std::move(s->capture);
    bad = s->spoilt;
    s->spoilt = false;
  }
  if (!g) return kInvalidValue;
  if (bad) return kCaptureInvalidated;
  std::lock_guard<std::mutex> hold(handles_lock);
  graphs.insert(g.get());
  return *graph = g.release(), kSuccess;
}

CUDA_API int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags) {
  if (int r = ready()) return r;
  if (flags != 0) return kInvalidValue;
  std::lock_guard<std::mutex> hold(handles_lock);
  if (!graphs.count(graph)) return kInvalidHandle;
  Graph* g = new Graph(*(Graph*)graph);
  launchable.insert(g);
  return *exec = g, kSuccess;
}

static int destroy(std::set<void*>& from, void* g) {
  std::lock_guard<std::mutex> hold(handles_lock);
  if (!from.erase(g)) return kInvalidHandle;
  delete (Graph*)g;
  return kSuccess;
}

CUDA_API int cuGraphDestroy(void* graph) { return destroy(graphs, graph); }
CUDA_API int cuGraphExecDestroy(void* exec) { return destroy(launchable, exec); }

CUDA_API int cuGraphLaunch(void* exec, void* stream) {
  std::vector<Op> ops;
  {
    std::lock_guard<std::mutex> hold(handles_lock);
    if (!launchable.count(exec)) return kInvalidHandle;
    ops = ((Graph*)exec)->ops;
  }
  for (Op& op : ops) {
    if (int r = submit(stream, op.run, op.given)) return r;
  }
  return kSuccess;
}

// For the stand-in of cublasLt: whether a context is current, and work of another library in a stream.
CUDA_API int emu_ready() { return ready(); }

CUDA_API int emu_submit(void* stream, int (*run)(void*), void* arg, void (*release)(void*)) {
  std::shared_ptr<void> held(arg, release);
  return submit(stream, [run, held] { return run(held.get()); });
}
