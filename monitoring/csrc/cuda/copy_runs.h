// The producer's kernel: a strided copy on the model's stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ring/slice.h"

namespace lockgate::cuda {

// Start copying the slice's runs, one after the other, to `out` (aligned to 16
// bytes) on `stream`. Both are device memory. Gives the launch's result.
cudaError_t copy_runs(const Slice& slice, std::byte* out, cudaStream_t stream) noexcept;

}  // namespace lockgate::cuda
