#include "clickhouse/encoder.h"

#include <bit>
#include <cstring>
#include <utility>

namespace lockgate::clickhouse {

// Numbers are copied as they lie in memory, and the format is little endian.
static_assert(std::endian::native == std::endian::little);

namespace {

std::size_t text_size(std::size_t length) noexcept { return varint_size(length) + length; }

// Writes into a buffer whose size was computed before; it never checks.
class Writer {
 public:
  explicit Writer(std::byte* out) noexcept : out_(out) {}

  std::byte* at() const noexcept { return out_; }

  void varint(std::uint64_t value) noexcept {
    while (value >= 0x80) {
      *out_++ = static_cast<std::byte>(value | 0x80);
      value >>= 7;
    }
    *out_++ = static_cast<std::byte>(value);
  }

  void bytes(const void* data, std::size_t size) noexcept {
    if (size == 0) return;  // memcpy from a null pointer is undefined even for no bytes
    std::memcpy(out_, data, size);
    out_ += size;
  }

  void text(std::string_view value) noexcept {
    varint(value.size());
    bytes(value.data(), value.size());
  }

  template <typename T>
  void number(T value) noexcept {
    std::memcpy(out_, &value, sizeof value);
    out_ += sizeof value;
  }

  template <typename T, typename Get>
  void numbers(std::span<const Row> rows, Get get) noexcept {
    for (const Row& row : rows) number<T>(get(row));
  }

 private:
  std::byte* out_;
};

std::string with_length(std::string_view value) {
  std::string out(text_size(value.size()), '\0');
  Writer(reinterpret_cast<std::byte*>(out.data())).text(value);
  return out;
}

}  // namespace

Encoder::Encoder(std::string_view run_id, std::string_view model_id)
    : run_id_(with_length(run_id)), model_id_(with_length(model_id)) {}

Block Encoder::encode(std::span<const Row> rows, std::uint64_t inserted_at, bool copy_all) const {
  const auto referenced = [copy_all](const Row& row) { return !copy_all && row.nbytes >= kReferenceFrom; };

  std::size_t size = varint_size(kColumns.size()) + varint_size(rows.size());
  for (const auto& [name, type] : kColumns) size += text_size(name.size()) + text_size(type.size());
  // Per row: layer, shard_rank, call (2 each), token_start, token_end (4 each), step, seq, the shape's end, inserted_at
  // (8 each).
  size += rows.size() * (run_id_.size() + model_id_.size() + 3 * 2 + 2 * 4 + 4 * 8);
  std::size_t references = 0;
  std::size_t referenced_bytes = 0;
  Block block;
  for (const Row& row : rows) {
    size += text_size(row.request_id.size()) + text_size(row.site.size()) + text_size(row.dtype.size());
    size += row.dims * sizeof(std::uint32_t) + varint_size(row.nbytes);
    block.payload_bytes += row.nbytes;
    if (referenced(row)) {
      ++references;
      referenced_bytes += row.nbytes;
    } else {
      size += row.nbytes;
    }
  }

  block.buffer_.reset(new std::byte[size]);  // not zeroed: every byte is written below
  block.segments_.reserve(2 * references + 1);
  block.rows = rows.size();
  block.first_seq = rows.empty() ? 0 : rows.front().seq;
  block.size_ = size + referenced_bytes;

  Writer out(block.buffer_.get());
  std::size_t column = 0;
  const auto head = [&out, &column] {
    out.text(kColumns[column].first);
    out.text(kColumns[column].second);
    ++column;
  };
  out.varint(kColumns.size());
  out.varint(rows.size());
  head();
  for (std::size_t i = 0; i < rows.size(); ++i) out.bytes(run_id_.data(), run_id_.size());
  head();
  for (std::size_t i = 0; i < rows.size(); ++i) out.bytes(model_id_.data(), model_id_.size());
  head();
  for (const Row& row : rows) out.text(row.request_id);
  head();
  for (const Row& row : rows) out.text(row.site);
  head();
  out.numbers<std::int16_t>(rows, [](const Row& row) { return row.layer; });
  head();
  out.numbers<std::uint16_t>(rows, [](const Row& row) { return row.shard_rank; });
  head();
  out.numbers<std::uint64_t>(rows, [](const Row& row) { return row.step; });
  head();
  out.numbers<std::uint64_t>(rows, [](const Row& row) { return row.seq; });
  head();
  out.numbers<std::uint16_t>(rows, [](const Row& row) { return row.call; });
  head();
  out.numbers<std::uint32_t>(rows, [](const Row& row) { return row.token_start; });
  head();
  out.numbers<std::uint32_t>(rows, [](const Row& row) { return row.token_end; });
  head();
  for (const Row& row : rows) out.text(row.dtype);
  head();
  std::uint64_t end = 0;
  for (const Row& row : rows) out.number<std::uint64_t>(end += row.dims);
  for (const Row& row : rows) out.bytes(row.shape, row.dims * sizeof(std::uint32_t));
  head();
  const std::byte* start = block.buffer_.get();
  for (const Row& row : rows) {
    out.varint(row.nbytes);
    if (referenced(row)) {
      block.segments_.push_back({start, static_cast<std::size_t>(out.at() - start)});
      block.segments_.push_back({row.data, row.nbytes});
      start = out.at();
    } else {
      out.bytes(row.data, row.nbytes);
    }
  }
  head();
  for (std::size_t i = 0; i < rows.size(); ++i) out.number<std::uint64_t>(inserted_at);
  block.segments_.push_back({start, static_cast<std::size_t>(out.at() - start)});
  return block;
}

}  // namespace lockgate::clickhouse
