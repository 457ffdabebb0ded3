// Reads a block of `captures` back: the encoder's counterpart, for tests and fuzzing alone.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "clickhouse/row.h"

namespace lockgate::testing {

struct DecodedRow {
  std::string run_id, model_id, request_id, site, dtype, data;
  std::int16_t layer = 0;
  std::uint16_t shard_rank = 0;
  std::uint16_t call = 0;
  std::uint32_t token_start = 0;
  std::uint32_t token_end = 0;
  std::uint64_t step = 0;
  std::uint64_t seq = 0;
  std::uint64_t inserted_at = 0;
  std::vector<std::uint32_t> shape;
};

class Reader {
 public:
  Reader(const std::byte* data, std::size_t size) : at_(data), end_(data + size) {}
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(*take(1));
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("varint too long");
  }
  std::string text() {
    const std::uint64_t size = varint();
    const std::byte* from = take(size);
    return {reinterpret_cast<const char*>(from), static_cast<std::size_t>(size)};
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  bool done() const { return at_ == end_; }

 private:
  const std::byte* take(std::uint64_t size) {
    if (size > static_cast<std::uint64_t>(end_ - at_)) throw std::runtime_error("block too short");
    const std::byte* from = at_;
    at_ += size;
    return from;
  }
  const std::byte* at_;
  const std::byte* end_;
};

inline std::vector<DecodedRow> decode(const std::byte* data, std::size_t size) {
  Reader in(data, size);
  if (in.varint() != clickhouse::kColumns.size()) throw std::runtime_error("wrong number of columns");
  std::vector<DecodedRow> rows(in.varint());
  std::size_t column = 0;
  const auto head = [&] {
    if (in.text() != clickhouse::kColumns[column].first || in.text() != clickhouse::kColumns[column].second) {
      throw std::runtime_error("wrong column " + std::to_string(column));
    }
    ++column;
  };
  const auto each = [&](auto read) {
    head();
    for (DecodedRow& row : rows) read(row);
  };
  each([&](DecodedRow& row) { row.run_id = in.text(); });
  each([&](DecodedRow& row) { row.model_id = in.text(); });
  each([&](DecodedRow& row) { row.request_id = in.text(); });
  each([&](DecodedRow& row) { row.site = in.text(); });
  each([&](DecodedRow& row) { row.layer = in.number<std::int16_t>(); });
  each([&](DecodedRow& row) { row.shard_rank = in.number<std::uint16_t>(); });
  each([&](DecodedRow& row) { row.step = in.number<std::uint64_t>(); });
  each([&](DecodedRow& row) { row.seq = in.number<std::uint64_t>(); });
  each([&](DecodedRow& row) { row.call = in.number<std::uint16_t>(); });
  each([&](DecodedRow& row) { row.token_start = in.number<std::uint32_t>(); });
  each([&](DecodedRow& row) { row.token_end = in.number<std::uint32_t>(); });
  each([&](DecodedRow& row) { row.dtype = in.text(); });
  std::uint64_t before = 0;
  each([&](DecodedRow& row) {
    const auto end = in.number<std::uint64_t>();
    row.shape.resize(end - before);
    before = end;
  });
  for (DecodedRow& row : rows) {
    for (std::uint32_t& extent : row.shape) extent = in.number<std::uint32_t>();
  }
  each([&](DecodedRow& row) { row.data = in.text(); });
  each([&](DecodedRow& row) { row.inserted_at = in.number<std::uint64_t>(); });
  if (!in.done()) throw std::runtime_error("bytes after the block");
  return rows;
}

}  // namespace lockgate::testing
