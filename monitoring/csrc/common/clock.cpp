#include "common/clock.h"

#include <algorithm>

namespace lockgate {

Deadline Deadline::after(double seconds) noexcept {
  // The negated comparison also catches NaN.
  if (!(seconds < kForever)) seconds = kForever;
  seconds = std::max(seconds, 0.0);
  return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

int Deadline::milliseconds(int ceiling) const noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, ceiling));
}

std::uint64_t wall_nanoseconds() noexcept {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

}  // namespace lockgate
