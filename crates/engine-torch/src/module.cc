// What tch does not offer: a TorchScript module that is prepared for inference, and libtorch's process-wide switches.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#include "guard.h"

using haloflow::channels_of;
using haloflow::device_of;
using haloflow::guarded;
using haloflow::NoTensor;

namespace {

// Only what is floating point changes its kind: a table of indices stays one.
void convert(const at::Tensor& tensor, at::ScalarType kind) {
  if (tensor.is_floating_point() && tensor.scalar_type() != kind) {
    tensor.set_data(tensor.to(kind));
  }
}

// Freezing makes constants of the weights and folds normalisations into convolutions. A module that cannot be frozen,
// because it writes to its own attributes for instance, runs as it is.
torch::jit::Module frozen(const torch::jit::Module& module) {
  try {
    return torch::jit::freeze(module);
  } catch (const std::exception&) {
    return module;
  }
}

at::Tensor the_tensor(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor();
  }
  if (value.isTuple() && !value.toTupleRef().elements().empty() && value.toTupleRef().elements()[0].isTensor()) {
    return value.toTupleRef().elements()[0].toTensor();
  }
  if (value.isTensorList()) {
    return channels_of(value.toTensorVector());
  }
  if (value.isGenericDict() && value.toGenericDict().size() == 1 && value.toGenericDict().begin()->value().isTensor()) {
    return value.toGenericDict().begin()->value().toTensor();
  }
  if (value.isList()) {
    throw NoTensor("list of " + std::to_string(value.toListRef().size()));
  }
  if (value.isGenericDict()) {
    throw NoTensor("dictionary of " + std::to_string(value.toGenericDict().size()));
  }
  throw NoTensor("value of type " + value.tagKind());
}

}  // namespace

extern "C" {

// Loads the module at `path` onto a device (negative: the CPU), in evaluation mode, its weights in `kind` (0 f32, 1 f16,
// 2 bf16).
int haloflow_module_load(const char* path, int device, int kind, torch::jit::Module** out, char** text) {
  return guarded(text, [&] {
    // The plain executor: it never profiles, fuses or specialises, so nothing is compiled after the first run and every
    // run of a shape gives the same bits.
    torch::jit::getProfilingMode() = false;
    at::NoGradGuard no_grad;
    c10::DeviceGuard on_device(device_of(device));
    torch::jit::Module module = torch::jit::load(path, device_of(device));
    module.eval();
    constexpr at::ScalarType kinds[] = {at::kFloat, at::kHalf, at::kBFloat16};
    const at::ScalarType scalar_type = kinds[kind];
    for (const at::Tensor& tensor : module.parameters()) convert(tensor, scalar_type);
    for (const at::Tensor& tensor : module.buffers()) convert(tensor, scalar_type);
    *out = new torch::jit::Module(frozen(module));
  });
}

// Runs `forward` on `input`, which is on the module's device. A new tensor comes back in `out`; it may alias `input`.
int haloflow_module_forward(torch::jit::Module* module, const at::Tensor* input, at::Tensor** out, char** text) {
  return guarded(text, [&] {
    c10::InferenceMode inference;
    c10::DeviceGuard on_device(input->device());
    *out = new at::Tensor(the_tensor(module->forward({*input})));
  });
}

void haloflow_module_free(torch::jit::Module* module) { delete module; }

void haloflow_text_free(char* text) { std::free(text); }

// Sets what libtorch keeps once per process.
int haloflow_configure(int intra_op_threads, bool tf32, bool cudnn_benchmark, char** text) {
  return guarded(text, [&] {
    at::set_num_threads(intra_op_threads);
    at::globalContext().setAllowTF32CuBLAS(tf32);
    at::globalContext().setAllowTF32CuDNN(tf32);
    at::globalContext().setBenchmarkCuDNN(cudnn_benchmark);
    if (at::get_num_interop_threads() != 1) {
      // Refused once that pool has started; nothing here depends on it.
      try {
        at::set_num_interop_threads(1);
      } catch (const std::exception&) {
      }
    }
  });
}

// libtorch's version, and the CUDA runtime's as 1000 * major + 10 * minor, or 0 without CUDA.
int haloflow_versions(int64_t* cuda, char** libtorch, char** text) {
  return guarded(text, [&] {
    *libtorch = strdup(TORCH_VERSION);
    *cuda = at::globalContext().hasCUDART() ? at::globalContext().versionCUDART() : 0;
  });
}

// The number of CUDA devices that can be used.
int haloflow_cuda_devices(int64_t* count, char** text) {
  return guarded(text, [&] { *count = at::detail::getCUDAHooks().deviceCount(); });
}

}  // extern "C"
