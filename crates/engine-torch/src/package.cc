// AOTInductor packages: a network that was compiled ahead of time for one kind of device and, mostly, one shape.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Version.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "guard.h"

using haloflow::device_of;
using haloflow::guarded;

namespace {

constexpr const char* kModelName = "model";

// What a package's outputs were before they became a flat list.
enum class Form { kTensor, kTuple, kList, kDictionary };

struct Package {
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader;
  Form form = Form::kTensor;
};

// The outermost type of an output's description, `[1, {"type": "builtins.list", …}]`.
Form form_of(const std::vector<std::string>& call_spec) {
  if (call_spec.size() != 2) {
    return Form::kTuple;
  }
  const std::string& outputs = call_spec[1];
  const size_t at = outputs.find("\"type\":");
  const std::string type = at == std::string::npos ? "" : outputs.substr(at + 7, 24);
  if (type.find("\"builtins.list\"") != std::string::npos) return Form::kList;
  if (type.find("\"builtins.dict\"") != std::string::npos) return Form::kDictionary;
  if (type.find("null") != std::string::npos) return Form::kTensor;
  return Form::kTuple;
}

// The same choice that a TorchScript module's output gets.
at::Tensor the_tensor(Form form, const std::vector<at::Tensor>& outputs) {
  if (outputs.empty()) {
    throw haloflow::NoTensor("package without outputs");
  }
  if (form == Form::kDictionary && outputs.size() != 1) {
    throw haloflow::NoTensor("dictionary of " + std::to_string(outputs.size()));
  }
  return form == Form::kList ? haloflow::channels_of(outputs) : outputs[0];
}

// A function of libtorch's or the runtime's CUDA part, where that is in the process: no CUDA header is needed for it.
template <typename Function>
Function cuda_symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// The CUDA stream that is current on `device`, as the runtime's handle; null on the CPU.
void* current_stream(c10::Device device) {
  using GetStream = int (*)(int32_t, void**);
  const auto get =
      device.is_cuda() ? cuda_symbol<GetStream>("aoti_torch_get_current_cuda_stream") : static_cast<GetStream>(nullptr);
  void* stream = nullptr;
  TORCH_CHECK(get == nullptr || get(device.index(), &stream) == 0, "the current CUDA stream cannot be told");
  return stream;
}

// A package is a library that needs libtorch's by their bare names, and a program's search path does not hold for the
// libraries that it loads. Those that are in the process already are taken whatever their folder, so all are brought in, from
// the folder of the one that is.
void bring_libtorch_in() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&at::get_cpu_capability), &info) == 0 || info.dli_fname == nullptr) {
    return;
  }
  std::string folder = info.dli_fname;
  folder.resize(folder.find_last_of('/') + 1);
  for (const char* name : {"libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so", "libtorch.so"}) {
    // What is not there is not needed, or is missed by name when the package loads.
    dlopen((folder + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

}  // namespace

extern "C" {

// What the package at `path` says of itself without being loaded: lines of `key=value`.
int haloflow_package_metadata(const char* path, char** metadata, char** text) {
  return guarded(text, [&] {
    std::string lines;
    for (const auto& [key, value] :
         torch::inductor::AOTIModelPackageLoader::load_metadata_from_package(path, kModelName)) {
      lines += key + "=" + value + "\n";
    }
    *metadata = strdup(lines.c_str());
  });
}

// Loads the package at `path` onto a device (negative: the CPU), for one thread.
int haloflow_package_load(const char* path, int device, Package** out, char** text) {
  return guarded(text, [&] {
    bring_libtorch_in();
    auto package = std::make_unique<Package>();
    package->loader = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
        path, kModelName, /*run_single_threaded=*/true, /*num_runners=*/1,
        device < 0 ? c10::DeviceIndex(-1) : static_cast<c10::DeviceIndex>(device));
    package->form = form_of(package->loader->get_call_spec());
    *out = package.release();
  });
}

// Runs `input`, which is on the package's device, on that device's current stream.
int haloflow_package_forward(Package* package, const at::Tensor* input, at::Tensor** out, char** text) {
  return guarded(text, [&] {
    c10::InferenceMode inference;
    c10::DeviceGuard on_device(input->device());
    const std::vector<at::Tensor> outputs = package->loader->run({*input}, current_stream(input->device()));
    *out = new at::Tensor(the_tensor(package->form, outputs));
  });
}

void haloflow_package_free(Package* package) { delete package; }

// Makes packages compare the shapes and kinds of what they are given with what they were compiled for; without that a wrong
// shape reads beyond its memory. Read by a package at its first run, so it is set before any is loaded.
void haloflow_package_check_inputs() { setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", /*overwrite=*/1); }

// The vector instructions that libtorch uses on this machine's processor, or a CUDA device's compute capability as two
// digits and more (`90`); 0 if it cannot be told.
int haloflow_architecture(int device, char** architecture, char** text) {
  return guarded(text, [&] {
    if (device < 0) {
      *architecture = strdup(at::get_cpu_capability().c_str());
      return;
    }
    using GetAttribute = int (*)(int*, int, int);
    const auto get = cuda_symbol<GetAttribute>("cudaDeviceGetAttribute");
    int major = 0;
    int minor = 0;
    constexpr int kMajor = 75;
    constexpr int kMinor = 76;
    const bool known = get != nullptr && get(&major, kMajor, device) == 0 && get(&minor, kMinor, device) == 0;
    *architecture = strdup(std::to_string(known ? 10 * major + minor : 0).c_str());
  });
}

}  // extern "C"
