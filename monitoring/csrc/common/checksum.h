// A 64-bit checksum that tells a damaged file from a whole one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockgate {

// FNV-1a over 64-bit words (the last one padded with zeros). Against accidents,
// not against attackers. Feed pieces of any length in order; never throws.
class Checksum {
 public:
  void add(const void* data, std::size_t size) noexcept;
  std::uint64_t value() const noexcept;

 private:
  void word(std::uint64_t value) noexcept { state_ = (state_ ^ value) * 0x100000001b3ULL; }
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
  std::uint64_t total_ = 0;
  unsigned char rest_[8] = {};
  std::size_t held_ = 0;
};

}  // namespace lockgate
