#include "common/interrupt.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace lockgate {

Interrupt::Interrupt()
    : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), when_(Deadline::never().when().time_since_epoch().count()) {
  if (!event_) throw std::system_error(errno, std::generic_category(), "eventfd");
}

void Interrupt::stop_by(Deadline when) noexcept {
  const Clock::rep ticks = when.when().time_since_epoch().count();
  Clock::rep held = when_.load(std::memory_order_relaxed);
  while (ticks < held && !when_.compare_exchange_weak(held, ticks, std::memory_order_relaxed)) {
  }
  // Release: who sees `stopping_` also sees the time.
  stopping_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // The only possible failure is a full counter, and then the reader is woken anyway.
  [[maybe_unused]] const ssize_t ignored = ::write(event_.get(), &one, sizeof one);
}

Deadline Interrupt::limit(Deadline limit) const noexcept {
  if (!stopping()) return limit;
  const Clock::time_point when{Clock::duration{when_.load(std::memory_order_relaxed)}};
  return limit.earlier(Deadline::at(when));
}

void Interrupt::clear() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(event_.get(), &count, sizeof count);
}

}  // namespace lockgate
