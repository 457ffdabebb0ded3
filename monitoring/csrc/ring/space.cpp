#include "ring/space.h"

namespace lockgate {

std::uint64_t Space::skipped(std::uint64_t size) const noexcept {
  if (head_ == tail_) return 0;  // empty: `take` starts at the front
  const std::uint64_t place = head_ % capacity_;
  return place + size > capacity_ ? capacity_ - place : 0;
}

bool Space::fits(std::uint64_t size) const noexcept { return used() + skipped(size) + size <= capacity_; }

Space::Taken Space::take(std::uint64_t size) noexcept {
  if (head_ == tail_) head_ = tail_ = 0;
  const std::uint64_t gap = skipped(size);
  const Taken taken{(head_ + gap) % capacity_, gap + size};
  head_ += taken.charge;
  return taken;
}

}  // namespace lockgate
