// Makes a device current for a scope.
#pragma once

#include "cuda/check.h"

namespace lockgate::cuda {

// The current device belongs to the thread, and the thread to somebody else.
// While another thread captures a graph, asking events and copying would break
// that capture unless this thread says that its calls are its own business.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    LOCKGATE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_));
    LOCKGATE_CUDA(cudaGetDevice(&before_));
    if (before_ != device) LOCKGATE_CUDA(cudaSetDevice(device));
    changed_ = before_ != device;
  }
  ~DeviceGuard() {
    if (changed_) LOCKGATE_CUDA_NOTHROW(cudaSetDevice(before_));
    LOCKGATE_CUDA_NOTHROW(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // from construction on: the one before
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace lockgate::cuda
