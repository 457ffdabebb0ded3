// Rows -> one FORMAT Native block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "clickhouse/block.h"
#include "clickhouse/row.h"

namespace lockgate::clickhouse {

// Encodes blocks of one run. Stateless between calls, so const and thread-safe;
// throws std::bad_alloc alone.
class Encoder {
 public:
  // Payloads of this size and more are referenced (gather write), smaller ones
  // copied: one more segment costs about as much as copying a few KiB.
  static constexpr std::size_t kReferenceFrom = 8192;

  Encoder(std::string_view run_id, std::string_view model_id);

  // With `copy_all` the block holds every payload itself, whatever its size.
  Block encode(std::span<const Row> rows, std::uint64_t inserted_at, bool copy_all) const;

 private:
  std::string run_id_;  // with its length in front, as it stands in each row
  std::string model_id_;
};

// Bytes of an unsigned LEB128 number.
constexpr std::size_t varint_size(std::uint64_t value) noexcept {
  std::size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

}  // namespace lockgate::clickhouse
