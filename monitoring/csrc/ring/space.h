// Which bytes of a circular memory are taken.
#pragma once

#include <cstdint>

namespace lockgate {

// Room is taken at one end and given back at the other, in the same order, and
// never split: what does not fit before the end of the memory starts at its
// front. Sizes are multiples of the payload's alignment. Plain arithmetic; not
// thread-safe; never throws.
class Space {
 public:
  struct Taken {
    std::uint64_t offset;
    std::uint64_t charge;  // the size, and what was skipped at the end
  };

  explicit Space(std::uint64_t capacity) noexcept : capacity_(capacity) {}

  std::uint64_t capacity() const noexcept { return capacity_; }
  std::uint64_t used() const noexcept { return head_ - tail_; }
  bool fits(std::uint64_t size) const noexcept;
  // Only what fits.
  Taken take(std::uint64_t size) noexcept;
  // The oldest charge.
  void give_back(std::uint64_t charge) noexcept { tail_ += charge; }
  void clear() noexcept { head_ = tail_ = 0; }

 private:
  std::uint64_t skipped(std::uint64_t size) const noexcept;

  std::uint64_t capacity_;
  std::uint64_t head_ = 0;  // both only grow; the place is the rest after division by the capacity
  std::uint64_t tail_ = 0;
};

}  // namespace lockgate
