#include "ring/slice.h"

#include <cstring>

namespace lockgate {

void copy_slice(const Slice& slice, std::byte* out) noexcept {
  if (slice.bytes() == 0) return;
  if (slice.run_bytes == slice.stride || slice.runs == 1) {
    std::memcpy(out, slice.source, slice.bytes());
    return;
  }
  const std::byte* source = slice.source;
  for (std::size_t run = 0; run < slice.runs; ++run, source += slice.stride, out += slice.run_bytes) {
    std::memcpy(out, source, slice.run_bytes);
  }
}

}  // namespace lockgate
