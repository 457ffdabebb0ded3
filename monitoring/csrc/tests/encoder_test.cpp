#include "clickhouse/encoder.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "check.h"
#include "decode.h"

using namespace lockgate;
using clickhouse::Encoder;
using clickhouse::Row;

static std::vector<std::byte> flat(const clickhouse::Block& block) {
  std::vector<std::byte> out(block.size());
  block.gather(out.data());
  return out;
}

static Row make_row(std::uint64_t seq, const std::array<std::uint32_t, 2>& shape, const std::vector<std::byte>& data) {
  Row row;
  row.request_id = "request";
  row.site = "resid_pre";
  row.dtype = "uint8";
  row.layer = -1;
  row.shard_rank = 65535;
  row.call = 7;
  row.dims = 2;
  row.step = 1ULL << 60;
  row.seq = seq;
  row.token_start = 3;
  row.token_end = 0xffffffff;
  row.shape = shape.data();
  row.data = data.data();
  row.nbytes = data.size();
  return row;
}

TEST(a_block_decodes_to_its_rows_with_and_without_references) {
  const std::array<std::uint32_t, 2> shape{2, 3};
  std::vector<std::vector<std::byte>> payloads;
  for (const std::size_t size : {0u, 1u, 127u, 128u, 8191u, 8192u, 8193u, 300000u, 5u}) {
    payloads.emplace_back(size, static_cast<std::byte>(size));
  }
  std::vector<Row> rows;
  for (std::size_t i = 0; i < payloads.size(); ++i) rows.push_back(make_row(i + 10, shape, payloads[i]));
  const Encoder encoder("run", "model");
  const auto referencing = encoder.encode(rows, 42, false);
  const auto copying = encoder.encode(rows, 42, true);
  CHECK_EQUAL(referencing.segments().size(), 7u);
  CHECK_EQUAL(copying.segments().size(), 1u);
  CHECK(flat(referencing) == flat(copying));
  CHECK_EQUAL(referencing.rows, 9u);
  CHECK_EQUAL(referencing.first_seq, 10u);
  const auto bytes = flat(referencing);
  const auto decoded = testing::decode(bytes.data(), bytes.size());
  CHECK_EQUAL(decoded.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK_EQUAL(decoded[i].run_id, "run");
    CHECK_EQUAL(decoded[i].model_id, "model");
    CHECK_EQUAL(decoded[i].request_id, "request");
    CHECK_EQUAL(decoded[i].layer, -1);
    CHECK_EQUAL(decoded[i].shard_rank, 65535);
    CHECK_EQUAL(decoded[i].token_end, 0xffffffff);
    CHECK_EQUAL(decoded[i].seq, i + 10);
    CHECK_EQUAL(decoded[i].inserted_at, 42u);
    CHECK_EQUAL(decoded[i].shape[1], 3u);
    CHECK_EQUAL(decoded[i].data.size(), payloads[i].size());
    CHECK(
        std::equal(payloads[i].begin(), payloads[i].end(), reinterpret_cast<const std::byte*>(decoded[i].data.data())));
  }
}

TEST(a_block_may_be_moved) {
  const std::vector<std::byte> payload(20000, std::byte{5});
  const std::array<std::uint32_t, 2> shape{1, 1};
  const std::vector<Row> rows{make_row(0, shape, payload)};
  clickhouse::Block block = Encoder("r", "m").encode(rows, 1, false);
  const auto before = flat(block);
  const clickhouse::Block moved = std::move(block);
  CHECK(flat(moved) == before);
}

TEST(no_rows_are_a_block_too) {
  const auto bytes = flat(Encoder("r", "m").encode({}, 1, false));
  CHECK(testing::decode(bytes.data(), bytes.size()).empty());
}

TEST(varints_have_the_size_that_is_promised) {
  for (const std::uint64_t value : {0ULL, 127ULL, 128ULL, 16383ULL, 16384ULL, ~0ULL}) {
    std::size_t size = 1;
    for (std::uint64_t left = value >> 7; left != 0; left >>= 7) ++size;
    CHECK_EQUAL(clickhouse::varint_size(value), size);
  }
}

TEST_MAIN
