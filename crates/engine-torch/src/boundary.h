// How C++ answers Rust. No exception leaves a file: a function returns a status, and the text of what went wrong in memory
// from malloc.
#pragma once

#include <cstring>
#include <exception>

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace haloflow {

// Runs `body`; 0 if it returned, 1 with `text` if it threw.
template <typename Body>
int guarded_call(char** text, Body body) {
  try {
    body();
    return 0;
  } catch (const c10::Error& error) {
    *text = strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    *text = strdup(error.what());
  } catch (...) {
    *text = strdup("an exception of no known kind");
  }
  return 1;
}

// A device by its CUDA index; negative is the CPU.
inline c10::Device device_at(int index) {
  return index < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace haloflow
