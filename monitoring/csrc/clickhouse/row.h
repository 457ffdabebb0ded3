// One row of the table `captures`, as views into memory that someone else owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace lockgate::clickhouse {

struct Row {
  std::string_view request_id;
  std::string_view site;
  std::string_view dtype;
  std::int16_t layer = 0;
  std::uint16_t shard_rank = 0;
  std::uint16_t call = 0;
  std::uint16_t dims = 0;
  std::uint32_t token_start = 0;
  std::uint32_t token_end = 0;
  std::uint64_t step = 0;
  std::uint64_t seq = 0;
  const std::uint32_t* shape = nullptr;
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;
};

// Name and ClickHouse type of each column, in the order of a block. The Python
// side repeats it; a test compares the two.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kColumns{{
    {"run_id", "String"},
    {"model_id", "String"},
    {"request_id", "String"},
    {"site", "String"},
    {"layer", "Int16"},
    {"shard_rank", "UInt16"},
    {"step", "UInt64"},
    {"seq", "UInt64"},
    {"call", "UInt16"},
    {"token_start", "UInt32"},
    {"token_end", "UInt32"},
    {"dtype", "String"},
    {"shape", "Array(UInt32)"},
    {"data", "String"},
    {"inserted_at", "UInt64"},
}};

}  // namespace lockgate::clickhouse
