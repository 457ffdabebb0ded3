#include "common/checksum.h"

#include <algorithm>
#include <cstring>

namespace lockgate {

void Checksum::add(const void* data, std::size_t size) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  total_ += size;
  if (held_ > 0) {
    const std::size_t part = std::min(size, sizeof rest_ - held_);
    std::memcpy(rest_ + held_, bytes, part);
    held_ += part;
    bytes += part;
    size -= part;
    if (held_ < sizeof rest_) return;
    std::uint64_t value = 0;
    std::memcpy(&value, rest_, sizeof value);
    word(value);
    held_ = 0;
  }
  for (; size >= sizeof(std::uint64_t); size -= sizeof(std::uint64_t), bytes += sizeof(std::uint64_t)) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, sizeof value);
    word(value);
  }
  std::memcpy(rest_, bytes, size);
  held_ = size;
}

std::uint64_t Checksum::value() const noexcept {
  Checksum end = *this;
  std::uint64_t value = 0;
  std::memcpy(&value, end.rest_, end.held_);
  end.word(value);
  end.word(total_);
  // The multiplication alone leaves the low bits weak.
  return end.state_ ^ (end.state_ >> 32);
}

}  // namespace lockgate
