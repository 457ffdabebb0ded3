// An encoded block: pieces of memory that are sent one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockgate::clickhouse {

struct Segment {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

// A FORMAT Native block of `rows` rows. Some segments point into the buffer,
// others straight at the rows' payloads, which must stay as long as the block
// is used. Movable (the segments stay valid), not copyable.
class Block {
 public:
  Block() = default;
  Block(Block&&) noexcept = default;
  Block& operator=(Block&&) noexcept = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const std::vector<Segment>& segments() const noexcept { return segments_; }
  std::size_t size() const noexcept { return size_; }
  // Write all segments to `out`, which has room for `size()` bytes.
  void gather(std::byte* out) const noexcept;

  std::uint64_t rows = 0;
  std::uint64_t first_seq = 0;
  std::uint64_t payload_bytes = 0;
  // The same for every attempt to send this block, unique among blocks.
  std::string token;

 private:
  friend class Encoder;
  friend Block view_block(const std::byte* data, std::size_t size);
  std::unique_ptr<std::byte[]> buffer_;
  std::vector<Segment> segments_;
  std::size_t size_ = 0;
};

// A block over bytes that were encoded before (a spool file); they must outlive it.
Block view_block(const std::byte* data, std::size_t size);

}  // namespace lockgate::clickhouse
