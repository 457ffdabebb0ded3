// Payload bytes in host memory.
#pragma once

#include "ring/payload.h"

namespace lockgate {

// One mapping, faulted in when it is made, so that no push pays for a page.
class HostPayload final : public Payload {
 public:
  explicit HostPayload(std::uint64_t capacity);  // std::runtime_error when there is not enough memory
  ~HostPayload() override;

  std::uint64_t capacity() const noexcept override { return capacity_; }
  std::uint64_t write(std::uint64_t offset, const Slice& slice, std::uintptr_t stream) override;
  bool ready(std::uint64_t) override { return true; }
  void fetch(std::span<const Region> regions, std::span<const std::byte*> out) override;
  std::uint64_t fetch_limit() const noexcept override { return capacity_; }

 private:
  std::uint64_t capacity_;
  std::byte* memory_;
};

}  // namespace lockgate
