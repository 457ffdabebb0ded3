// Which bytes of a tensor one record takes: equal runs at equal distances.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockgate {

struct Slice {
  const std::byte* source = nullptr;
  std::size_t runs = 1;
  std::size_t run_bytes = 0;
  std::size_t stride = 0;  // from one run's start to the next one's

  std::size_t bytes() const noexcept { return runs * run_bytes; }
};

// Copy the runs one after the other in host memory; never throws.
void copy_slice(const Slice& slice, std::byte* out) noexcept;

}  // namespace lockgate
