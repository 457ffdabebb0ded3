// Time limits on the steady clock, and the wall clock for time stamps.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockgate {

using Clock = std::chrono::steady_clock;

// A point in time after which an operation gives up. Copyable; never throws.
class Deadline {
 public:
  // Seconds from now. Negative counts as zero; very long or not a number means "in a year".
  static Deadline after(double seconds) noexcept;
  static Deadline at(Clock::time_point when) noexcept { return Deadline(when); }
  static Deadline never() noexcept { return after(kForever); }

  bool passed() const noexcept { return Clock::now() >= when_; }
  Clock::time_point when() const noexcept { return when_; }
  // Whole milliseconds left, rounded up, at least 0 and at most `ceiling`: an argument for poll().
  int milliseconds(int ceiling = 60'000) const noexcept;
  Deadline earlier(Deadline other) const noexcept { return other.when_ < when_ ? other : *this; }

 private:
  static constexpr double kForever = 365.0 * 24 * 3600;
  explicit Deadline(Clock::time_point when) noexcept : when_(when) {}
  Clock::time_point when_;
};

// Nanoseconds since 1970.
std::uint64_t wall_nanoseconds() noexcept;

}  // namespace lockgate
