// Streams, events and pinned memory of a device, without a CUDA header: streams are libtorch's own, through its interface for
// any device; the six functions of the CUDA runtime that it does not offer (events that a host thread can sleep on, pinned
// memory of exact size) are looked up in the process, where libtorch_cuda has brought them. On the CPU all work is done when a
// call returns, so that there a stream is nothing and an event has always happened.

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include <ATen/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "boundary.h"

using haloflow::device_at;
using haloflow::guarded_call;

namespace {

// The part of the CUDA runtime that is needed, as <cuda_runtime_api.h> declares it: handles are pointers, errors are ints.
struct Runtime {
  int (*event_create)(void**, unsigned int);
  int (*event_record)(void*, void*);
  int (*event_synchronize)(void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*event_destroy)(void*);
  int (*stream_wait_event)(void*, void*, unsigned int);
  int (*host_alloc)(void**, size_t, unsigned int);
  int (*free_host)(void*);
  int (*last_error)();
  const char* (*error_string)(int);
};

constexpr unsigned int kBlockingSync = 0x1;   // cudaEventBlockingSync
constexpr unsigned int kDisableTiming = 0x2;  // cudaEventDisableTiming
constexpr unsigned int kPortable = 0x1;       // cudaHostAllocPortable

template <typename Function>
void look_up(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (function == nullptr) {
    throw std::runtime_error(std::string("the CUDA runtime has no function ") + name + " in this process");
  }
}

const Runtime& runtime() {
  static const Runtime found = [] {
    Runtime runtime{};
    look_up(runtime.event_create, "cudaEventCreateWithFlags");
    look_up(runtime.event_record, "cudaEventRecord");
    look_up(runtime.event_synchronize, "cudaEventSynchronize");
    look_up(runtime.event_destroy, "cudaEventDestroy");
    look_up(runtime.stream_wait_event, "cudaStreamWaitEvent");
    look_up(runtime.host_alloc, "cudaHostAlloc");
    look_up(runtime.free_host, "cudaFreeHost");
    look_up(runtime.last_error, "cudaGetLastError");
    look_up(runtime.error_string, "cudaGetErrorString");
    // Newer headers map the name to another version; this one is there in every version and means the same.
    look_up(runtime.event_elapsed, "cudaEventElapsedTime");
    return runtime;
  }();
  return found;
}

void check(int error) {
  if (error != 0) {
    // An error that is not sticky would be told again to whoever asks next.
    runtime().last_error();
    throw std::runtime_error(std::string("CUDA error: ") + runtime().error_string(error));
  }
}

c10::impl::VirtualGuardImpl guard_of(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

// A host thread that never chose a device would get a context on device 0 from whatever it calls.
void use_device(c10::Device device) { guard_of(device).setDevice(device); }

}  // namespace

struct haloflow_stream {
  c10::Device device;
  c10::Stream stream;
  void* handle;
};

// Ordering is by events alone, and a host thread that waits for one sleeps.
struct haloflow_event {
  c10::Device device;
  void* handle;
};

extern "C" {

// Makes a stream of `device` and makes the device the calling thread's current one.
int haloflow_stream_new(int device, bool high_priority, haloflow_stream** out, char** text) {
  return guarded_call(text, [&] {
    const c10::Device place = device_at(device);
    if (place.is_cpu()) {
      *out = new haloflow_stream{place, guard_of(place).getStream(place), nullptr};
      return;
    }
    use_device(place);
    const c10::Stream stream = guard_of(place).getStreamFromGlobalPool(place, high_priority);
    *out = new haloflow_stream{place, stream, guard_of(place).getStreamNativeHandle(stream)};
  });
}

void haloflow_stream_free(haloflow_stream* stream) { delete stream; }

// Makes it the stream that the calling thread's operations on its device go to.
int haloflow_stream_make_current(const haloflow_stream* stream, char** text) {
  return guarded_call(text, [&] {
    if (!stream->device.is_cpu()) {
      use_device(stream->device);
      guard_of(stream->device).exchangeStream(stream->stream);
    }
  });
}

// The event happens when all work that is on the stream now is done.
int haloflow_stream_record(const haloflow_stream* stream, haloflow_event* event, char** text) {
  return guarded_call(text, [&] {
    if (event->handle != nullptr) check(runtime().event_record(event->handle, stream->handle));
  });
}

// Work put on the stream from now on starts after the event. An event that was never recorded holds nothing up.
int haloflow_stream_wait(const haloflow_stream* stream, const haloflow_event* event, char** text) {
  return guarded_call(text, [&] {
    if (event->handle != nullptr) check(runtime().stream_wait_event(stream->handle, event->handle, 0));
  });
}

// Blocks until all work on the stream is done. For start-up, shutdown and after failures only.
int haloflow_stream_synchronize(const haloflow_stream* stream, char** text) {
  return guarded_call(text, [&] {
    if (!stream->device.is_cpu()) guard_of(stream->device).synchronizeStream(stream->stream);
  });
}

// Puts a copy on the current stream of the device that is concerned, and does not wait for it.
int haloflow_copy(at::Tensor* into, const at::Tensor* from, char** text) {
  return guarded_call(text, [&] {
    c10::AutoGradMode no_grad(false);
    into->copy_(*from, /*non_blocking=*/true);
  });
}

int haloflow_event_new(int device, bool timed, haloflow_event** out, char** text) {
  return guarded_call(text, [&] {
    const c10::Device place = device_at(device);
    void* handle = nullptr;
    if (!place.is_cpu()) {
      use_device(place);
      check(runtime().event_create(&handle, timed ? kBlockingSync : kBlockingSync | kDisableTiming));
    }
    *out = new haloflow_event{place, handle};
  });
}

// Sleeps until the event has happened. May be called on any thread; what the device failed at is told here.
int haloflow_event_synchronize(const haloflow_event* event, char** text) {
  return guarded_call(text, [&] {
    if (event->handle == nullptr) return;
    use_device(event->device);
    check(runtime().event_synchronize(event->handle));
  });
}

// Milliseconds between two timed events that have happened.
int haloflow_event_elapsed(const haloflow_event* from, const haloflow_event* to, float* milliseconds, char** text) {
  return guarded_call(text, [&] {
    *milliseconds = 0;
    if (from->handle == nullptr || to->handle == nullptr) return;
    use_device(from->device);
    check(runtime().event_elapsed(milliseconds, from->handle, to->handle));
  });
}

void haloflow_event_free(haloflow_event* event) {
  char* text = nullptr;
  guarded_call(&text, [&] {
    if (event->handle == nullptr) return;
    use_device(event->device);
    // It fails on a device that is lost, and there is nothing to keep then.
    if (runtime().event_destroy(event->handle) != 0) runtime().last_error();
  });
  std::free(text);
  delete event;
}

// Pinned memory of exactly `bytes` bytes, zeroed, which every device may copy from and to.
int haloflow_pinned_new(int device, size_t bytes, void** out, char** text) {
  return guarded_call(text, [&] {
    use_device(device_at(device));
    check(runtime().host_alloc(out, bytes, kPortable));
    std::memset(*out, 0, bytes);
  });
}

void haloflow_pinned_free(int device, void* memory) {
  char* text = nullptr;
  guarded_call(&text, [&] {
    use_device(device_at(device));
    if (runtime().free_host(memory) != 0) runtime().last_error();
  });
  std::free(text);
}

// Bytes of the device's memory: free, and in all. What libtorch keeps for later counts as taken.
int haloflow_memory(int device, uint64_t* free, uint64_t* total, char** text) {
  return guarded_call(text, [&] {
    use_device(device_at(device));
    const auto info = c10::getDeviceAllocator(c10::kCUDA)->getMemoryInfo(static_cast<c10::DeviceIndex>(device));
    *free = info.first;
    *total = info.second;
  });
}

// Gives back to the device what libtorch keeps for later.
int haloflow_release_memory(int device, char** text) {
  return guarded_call(text, [&] {
    use_device(device_at(device));
    c10::getDeviceAllocator(c10::kCUDA)->emptyCache();
  });
}

}  // extern "C"
