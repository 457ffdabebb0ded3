// The account of every record: accepted = written + dropped + failed + pending.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockgate {

enum class Drop : std::size_t { kDeadline, kNewest, kOldest, kSample, kOversize, kClosed, kDevice, kPolicy, kCount };
enum class Fail : std::size_t { kRetry, kFatal, kSpool, kLeftInSpool, kClosed, kHook, kCount };

inline constexpr std::array<std::string_view, static_cast<std::size_t>(Drop::kCount)> kDropNames{
    "deadline", "newest", "oldest", "sample", "oversize", "closed", "device", "policy"};
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Fail::kCount)> kFailNames{
    "retry", "fatal", "spool", "left_in_spool", "closed", "hook"};

// Plain counters. Not thread-safe: the ring keeps them under its lock, so that
// a copy is a consistent snapshot. Every method keeps the equation; never throws.
class Ledger {
 public:
  // A new record. It takes the next sequence number, which is returned.
  std::uint64_t accept(std::uint64_t bytes) noexcept;
  // A new record that is dropped at once; it takes its sequence number with it.
  void refuse(Drop reason, std::uint64_t bytes, std::uint64_t records = 1) noexcept;
  // New records that failed before they reached the ring.
  void fail_outside(Fail reason, std::uint64_t records) noexcept;

  // Pending records leave.
  void drop(Drop reason, std::uint64_t records, std::uint64_t bytes) noexcept;
  void write(std::uint64_t records, std::uint64_t bytes) noexcept;
  void fail(Fail reason, std::uint64_t records, std::uint64_t bytes) noexcept;

  // Pending records go to disk and come back; they stay pending.
  void spool(std::uint64_t records) noexcept { spooled += records; }
  void unspool(std::uint64_t records) noexcept { spooled -= records; }

  std::uint64_t dropped_total() const noexcept;
  std::uint64_t failed_total() const noexcept;

  std::uint64_t accepted = 0;  // also the next sequence number
  std::uint64_t written = 0;
  std::uint64_t pending = 0;
  std::array<std::uint64_t, static_cast<std::size_t>(Drop::kCount)> dropped{};
  std::array<std::uint64_t, static_cast<std::size_t>(Fail::kCount)> failed{};
  std::uint64_t bytes_accepted = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_pending = 0;
  std::uint64_t spooled = 0;
  std::uint64_t replayed = 0;
  std::uint64_t blocks = 0;
  std::uint64_t retries = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t peak_records = 0;
};

}  // namespace lockgate
