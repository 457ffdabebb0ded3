// When to try a failing sink again.
#pragma once

#include <algorithm>
#include <chrono>

#include "common/clock.h"

namespace lockgate {

// Pauses double from 50 ms to 2 s while attempts fail. Pure but for the time
// that is passed in; not thread-safe; never throws.
class Backoff {
 public:
  static constexpr std::chrono::milliseconds kFirst{50};
  static constexpr std::chrono::milliseconds kLongest{2000};

  void failed(Clock::time_point now) noexcept {
    if (!failing_) since_ = now;
    pause_ = failing_ ? std::min(2 * pause_, kLongest) : kFirst;
    failing_ = true;
    next_ = now + pause_;
  }
  void succeeded() noexcept { failing_ = false; }

  bool failing() const noexcept { return failing_; }
  // Whether the next attempt may start.
  bool ready(Clock::time_point now) const noexcept { return !failing_ || now >= next_; }
  Clock::time_point next() const noexcept { return next_; }
  // Seconds since the first failure of this row; 0 while all is well.
  double failing_for(Clock::time_point now) const noexcept {
    return failing_ ? std::chrono::duration<double>(now - since_).count() : 0.0;
  }

 private:
  bool failing_ = false;
  std::chrono::milliseconds pause_{kFirst};
  Clock::time_point since_{};
  Clock::time_point next_{};
};

}  // namespace lockgate
