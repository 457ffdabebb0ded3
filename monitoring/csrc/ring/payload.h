// Where the ring's payload bytes lie: host memory or a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ring/slice.h"

namespace lockgate {

// A region of the payload memory that one record owns.
struct Region {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t ticket = 0;  // what `write` gave
};

// `write` is called by producers, each for a region of its own; the rest by the
// drain thread alone.
class Payload {
 public:
  Payload() = default;
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;
  virtual ~Payload() = default;

  // Bytes that the ring may give out. A multiple of `kAlignment`.
  virtual std::uint64_t capacity() const noexcept = 0;
  // Copy (or start to copy, after the work on `stream`) the slice to `offset`. Throws std::runtime_error.
  virtual std::uint64_t write(std::uint64_t offset, const Slice& slice, std::uintptr_t stream) = 0;
  // Whether the copy has arrived. Throws std::runtime_error when it never will.
  virtual bool ready(std::uint64_t ticket) = 0;
  // Make the regions readable by the host, and put the address of each in `out`.
  // The addresses hold until the next call. Throws std::runtime_error.
  virtual void fetch(std::span<const Region> regions, std::span<const std::byte*> out) = 0;
  // Most bytes that one `fetch` can make readable.
  virtual std::uint64_t fetch_limit() const noexcept = 0;
  // Whether fetched bytes lie outside the ring's memory, so that their room may be given back at once.
  virtual bool staged() const noexcept { return false; }

  static constexpr std::uint64_t kAlignment = 64;
  static constexpr std::uint64_t aligned(std::uint64_t nbytes) noexcept {
    return (nbytes + kAlignment - 1) / kAlignment * kAlignment;
  }
};

}  // namespace lockgate
