#include "clickhouse/block.h"

#include <cstring>

namespace lockgate::clickhouse {

void Block::gather(std::byte* out) const noexcept {
  for (const Segment& segment : segments_) {
    std::memcpy(out, segment.data, segment.size);
    out += segment.size;
  }
}

Block view_block(const std::byte* data, std::size_t size) {
  Block block;
  block.segments_.push_back({data, size});
  block.size_ = size;
  return block;
}

}  // namespace lockgate::clickhouse
