// The CUDA build's answers about this machine.
#include "cuda/check.h"
#include "cuda/cuda.h"

namespace lockgate::cuda {

int device_count() noexcept {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  LOCKGATE_CUDA_NOTHROW(code);
  return code == cudaSuccess ? count : 0;
}

std::string status() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  LOCKGATE_CUDA_NOTHROW(code);
  if (code != cudaSuccess) {
    return std::string("built with CUDA, but there is no device: ") + cudaGetErrorName(code) + " (" +
           cudaGetErrorString(code) + ")";
  }
  if (count == 0) return "built with CUDA, but there is no device";
  return "built with CUDA, " + std::to_string(count) + (count == 1 ? " device" : " devices");
}

}  // namespace lockgate::cuda
