// Encodes rows made of arbitrary bytes and reads them back.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "clickhouse/encoder.h"
#include "decode.h"

using namespace lockgate;

static void require(bool holds) {
  if (!holds) std::abort();
}

namespace {

// Takes values from the input until it is used up, then zeros.
class Source {
 public:
  Source(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  template <typename T>
  T take() {
    T value{};
    const std::size_t part = std::min(sizeof value, size_);
    std::memcpy(&value, data_, part);
    data_ += part;
    size_ -= part;
    return value;
  }
  std::string_view text(std::size_t most) {
    const std::size_t part = std::min<std::size_t>(take<std::uint8_t>() % (most + 1), size_);
    const std::string_view out(reinterpret_cast<const char*>(data_), part);
    data_ += part;
    size_ -= part;
    return out;
  }
  bool empty() const { return size_ == 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::byte> memory(1 << 16, std::byte{0x5a});
  Source source(data, size);
  const std::string_view run = source.text(40);
  const std::string_view model = source.text(200);
  std::vector<clickhouse::Row> rows;
  std::vector<std::array<std::uint32_t, 8>> shapes(64);
  while (!source.empty() && rows.size() < shapes.size()) {
    clickhouse::Row row;
    row.request_id = source.text(255);
    row.site = source.text(30);
    row.dtype = source.text(12);
    row.layer = source.take<std::int16_t>();
    row.shard_rank = source.take<std::uint16_t>();
    row.call = source.take<std::uint16_t>();
    row.step = source.take<std::uint64_t>();
    row.seq = source.take<std::uint64_t>();
    row.token_start = source.take<std::uint32_t>();
    row.token_end = source.take<std::uint32_t>();
    row.dims = source.take<std::uint8_t>() % 9;
    shapes[rows.size()] = source.take<std::array<std::uint32_t, 8>>();
    row.shape = shapes[rows.size()].data();
    row.nbytes = source.take<std::uint16_t>();
    row.data = memory.data();
    rows.push_back(row);
  }
  const auto inserted_at = source.take<std::uint64_t>();
  const clickhouse::Encoder encoder(run, model);
  const clickhouse::Block block = encoder.encode(rows, inserted_at, false);
  std::vector<std::byte> bytes(block.size());
  block.gather(bytes.data());
  const clickhouse::Block copied = encoder.encode(rows, inserted_at, true);
  require(copied.size() == bytes.size());
  require(std::equal(bytes.begin(), bytes.end(), copied.segments().front().data));

  const auto decoded = testing::decode(bytes.data(), bytes.size());
  require(decoded.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const clickhouse::Row& row = rows[i];
    const testing::DecodedRow& found = decoded[i];
    require(found.run_id == run && found.model_id == model && found.request_id == row.request_id);
    require(found.site == row.site && found.dtype == row.dtype && found.layer == row.layer);
    require(found.shard_rank == row.shard_rank && found.call == row.call && found.step == row.step);
    require(found.seq == row.seq && found.token_start == row.token_start && found.token_end == row.token_end);
    require(found.inserted_at == inserted_at && found.shape.size() == row.dims);
    require(std::equal(found.shape.begin(), found.shape.end(), row.shape));
    require(found.data.size() == row.nbytes && std::memcmp(found.data.data(), row.data, row.nbytes) == 0);
  }
  return 0;
}
