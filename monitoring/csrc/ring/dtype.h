// Element types by torch's names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace lockgate {

// Bytes per element. `monitoring.rows.ITEM_BYTES` repeats it; a test compares the two.
inline constexpr std::array<std::pair<std::string_view, std::uint32_t>, 21> kItemBytes{{
    {"bool", 1},
    {"uint8", 1},
    {"int8", 1},
    {"float8_e4m3fn", 1},
    {"float8_e5m2", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
    {"uint16", 2},
    {"int16", 2},
    {"float16", 2},
    {"bfloat16", 2},
    {"uint32", 4},
    {"int32", 4},
    {"float32", 4},
    {"uint64", 8},
    {"int64", 8},
    {"float64", 8},
    {"complex32", 4},
    {"complex64", 8},
    {"complex128", 16},
}};

// 0 for a name that is not there.
constexpr std::uint32_t item_bytes(std::string_view dtype) noexcept {
  for (const auto& [name, bytes] : kItemBytes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

}  // namespace lockgate
