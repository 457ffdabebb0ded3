// Every call of the CUDA runtime goes through one of these.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace lockgate::cuda {

// Throws std::runtime_error with the call, CUDA's name of the error and its words.
inline void check(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // an error that is not sticky must not show up at the next call
  throw std::runtime_error(std::string(call) + " failed with " + cudaGetErrorName(code) + " (" +
                           cudaGetErrorString(code) + ") at " + file + ":" + std::to_string(line));
}

// For destructors: nothing can be done, and nothing may be thrown.
inline void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
}

}  // namespace lockgate::cuda

#define LOCKGATE_CUDA(call) ::lockgate::cuda::check((call), #call, __FILE__, __LINE__)
#define LOCKGATE_CUDA_NOTHROW(call) ::lockgate::cuda::ignore((call))
