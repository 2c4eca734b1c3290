// What this process has of libtorch and CUDA, for a person who wants to know why something does not run.

#include <cstdint>
#include <cstdlib>
#include <string>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <dlfcn.h>

#include "guard.h"

using haloflow::guarded;

namespace {

// A function of the runtime's, where that is in the process: no CUDA header is needed for it.
template <typename Function>
Function runtime(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// The driver's library, which the runtime loads when it is used first; null where no driver is installed.
void* driver() { return dlopen("libcuda.so.1", RTLD_NOW); }

std::string error_text(int status) {
  const auto text = runtime<const char* (*)(int)>("cudaGetErrorString");
  return text == nullptr ? "error " + std::to_string(status) : text(status);
}

std::string name_of(int device) {
  void* library = driver();
  if (library == nullptr) {
    return "";
  }
  const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(library, "cuDeviceGet"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(library, "cuDeviceGetName"));
  int handle = 0;
  char text[256] = "";
  const bool known = get != nullptr && name != nullptr && get(&handle, device) == 0 && name(text, sizeof text, handle) == 0;
  return known ? text : "";
}

}  // namespace

extern "C" {

// How the libtorch that was loaded was built, in its own words.
int haloflow_build(char** build, char** text) {
  return guarded(text, [&] { *build = strdup(at::show_config().c_str()); });
}

// Lines of `key=value`: whether the driver's library is found, the newest CUDA that it can do (1000 major + 10 minor), the number
// of devices, and what the runtime says where it gives none.
int haloflow_driver(char** facts, char** text) {
  return guarded(text, [&] {
    std::string lines = std::string("library=") + (driver() == nullptr ? "0" : "1") + "\n";
    int number = 0;
    const auto version = runtime<int (*)(int*)>("cudaDriverGetVersion");
    if (version != nullptr && version(&number) == 0) {
      lines += "cuda=" + std::to_string(number) + "\n";
    }
    const auto count = runtime<int (*)(int*)>("cudaGetDeviceCount");
    const int status = count == nullptr ? 0 : count(&number);
    if (count != nullptr && status == 0) {
      lines += "devices=" + std::to_string(number) + "\n";
    } else if (count != nullptr) {
      lines += "problem=" + error_text(status) + "\n";
    }
    *facts = strdup(lines.c_str());
  });
}

// Lines of `key=value` about a CUDA device: its name, and its memory, free and in all, in bytes. The thread's current device
// stays what it was.
int haloflow_device(int device, char** facts, char** text) {
  return guarded(text, [&] {
    std::string lines = "name=" + name_of(device) + "\n";
    const auto current = runtime<int (*)(int*)>("cudaGetDevice");
    const auto choose = runtime<int (*)(int)>("cudaSetDevice");
    const auto memory = runtime<int (*)(size_t*, size_t*)>("cudaMemGetInfo");
    int before = 0;
    size_t free = 0;
    size_t total = 0;
    TORCH_CHECK(current != nullptr && choose != nullptr && memory != nullptr, "libtorch has no CUDA");
    TORCH_CHECK(current(&before) == 0, "the CUDA device in use cannot be told");
    int status = choose(device);
    status = status == 0 ? memory(&free, &total) : status;
    choose(before);
    TORCH_CHECK(status == 0, error_text(status));
    lines += "free=" + std::to_string(free) + "\ntotal=" + std::to_string(total) + "\n";
    *facts = strdup(lines.c_str());
  });
}

}  // extern "C"
