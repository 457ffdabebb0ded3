#include <algorithm>
#include <cstdint>

#include "cuda/copy_runs.h"

namespace lockgate::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 1024;  // the loop takes the rest: a copy must not crowd out the model
constexpr std::size_t kMostRows = 65535;   // of a grid

// Sizes and strides are in words.
template <typename Word>
__global__ void copy_words(const Word* source, Word* out, std::size_t runs, std::size_t words, std::size_t stride) {
  for (std::size_t run = blockIdx.y; run < runs; run += gridDim.y) {
    const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t word = first; word < words; word += step) out[run * words + word] = source[run * stride + word];
  }
}

template <typename Word>
cudaError_t launch(const Slice& slice, std::byte* out, cudaStream_t stream) noexcept {
  const std::size_t words = slice.run_bytes / sizeof(Word);
  const auto rows = static_cast<unsigned>(std::min(slice.runs, kMostRows));
  const std::size_t wanted = (words + kThreads - 1) / kThreads;
  const auto columns =
      static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(1, kMostBlocks / rows)));
  copy_words<Word><<<dim3(columns, rows), kThreads, 0, stream>>>(reinterpret_cast<const Word*>(slice.source),
                                                                 reinterpret_cast<Word*>(out), slice.runs, words,
                                                                 slice.stride / sizeof(Word));
  return cudaGetLastError();
}

// Whether all addresses and sizes are multiples of the word.
template <typename Word>
bool fits(const Slice& slice) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(slice.source);
  return (address | slice.run_bytes | slice.stride) % sizeof(Word) == 0;
}

}  // namespace

cudaError_t copy_runs(const Slice& whole, std::byte* out, cudaStream_t stream) noexcept {
  if (whole.bytes() == 0) return cudaSuccess;
  Slice slice = whole;
  if (slice.runs == 1 || slice.stride == slice.run_bytes) slice = {whole.source, 1, whole.bytes(), whole.bytes()};
  if (fits<uint4>(slice)) return launch<uint4>(slice, out, stream);
  if (fits<std::uint32_t>(slice)) return launch<std::uint32_t>(slice, out, stream);
  return launch<std::uint8_t>(slice, out, stream);
}

}  // namespace lockgate::cuda
