// What a full ring does with a new record.
#pragma once

#include <optional>
#include <string_view>

namespace lockgate {

enum class Policy { kBlock, kDropNewest, kDropOldest, kSample };

inline constexpr std::string_view kPolicyNames = "block, drop_newest, drop_oldest, sample";

constexpr std::optional<Policy> parse_policy(std::string_view word) noexcept {
  if (word == "block") return Policy::kBlock;
  if (word == "drop_newest") return Policy::kDropNewest;
  if (word == "drop_oldest") return Policy::kDropOldest;
  if (word == "sample") return Policy::kSample;
  return std::nullopt;
}

}  // namespace lockgate
