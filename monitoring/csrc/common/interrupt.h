// A switch that wakes a thread out of poll().
#pragma once

#include <atomic>

#include "common/clock.h"
#include "common/unique_fd.h"

namespace lockgate {

// One thread waits on `fd()`, any thread calls `stop_by`. From then on every
// wait ends by that time at the latest. Thread-safe; only the constructor throws.
class Interrupt {
 public:
  Interrupt();  // std::system_error when the process has no descriptor left

  // End waits by `when`; an earlier time given before stays.
  void stop_by(Deadline when) noexcept;
  bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }
  // The earlier of `limit` and the time given to `stop_by`.
  Deadline limit(Deadline limit) const noexcept;
  // Readable once, after `stop_by`; `clear` makes it quiet again so that a wait can go on to its new limit.
  int fd() const noexcept { return event_.get(); }
  void clear() noexcept;

 private:
  UniqueFd event_;
  std::atomic<bool> stopping_{false};
  std::atomic<Clock::rep> when_;
};

}  // namespace lockgate
