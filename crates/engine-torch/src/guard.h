// The boundary's rules: no exception leaves C++. A function returns a status, and the text of what went wrong in memory
// from malloc.

#pragma once

#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace haloflow {

// Mirrors `checked` in ffi.rs.
enum Status : int { kDone = 0, kFailed = 1, kNoTensor = 2 };

// A model's output is not what a patch can be made of.
struct NoTensor : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename Body>
int guarded(char** text, Body body) {
  try {
    body();
    return kDone;
  } catch (const NoTensor& error) {
    *text = strdup(error.what());
    return kNoTensor;
  } catch (const c10::Error& error) {
    *text = strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    *text = strdup(error.what());
  } catch (...) {
    *text = strdup("an exception of no known kind");
  }
  return kFailed;
}

// Negative: the CPU.
inline c10::Device device_of(int index) {
  return index < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

// One tensor of a list's: each of several is one output channel, [row, 1, z, y, x] or [row, z, y, x].
inline at::Tensor channels_of(const std::vector<at::Tensor>& list) {
  if (list.size() == 1) {
    return list[0];
  }
  std::vector<at::Tensor> channels;
  for (const at::Tensor& tensor : list) {
    const bool flat = tensor.dim() == 4;
    if (!(flat || (tensor.dim() == 5 && tensor.size(1) == 1)) || tensor.sizes() != list[0].sizes()) {
      throw NoTensor("list of " + std::to_string(list.size()) + " that are not one channel each");
    }
    channels.push_back(flat ? tensor.unsqueeze(1) : tensor);
  }
  if (channels.empty()) {
    throw NoTensor("list of 0");
  }
  return at::cat(channels, 1);
}

}  // namespace haloflow
