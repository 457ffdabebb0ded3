// Payload bytes on a CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ring/payload.h"

namespace lockgate::cuda {

// Producers start a copy kernel on the model's stream and record an event
// behind it; nothing waits there. The drain thread asks the events, then copies
// whole spans to pinned host memory on a stream of its own. All positions are
// kept on the host: no managed memory, nothing is read from the device but payload.
class DevicePayload final : public Payload {
 public:
  // Most bytes of pinned host memory for one batch.
  static constexpr std::uint64_t kMostStaging = 64u << 20;

  // Throws std::runtime_error when the device does not exist or has no room.
  DevicePayload(int device, std::uint64_t capacity_bytes);
  ~DevicePayload() override;

  std::uint64_t capacity() const noexcept override { return capacity_; }
  std::uint64_t write(std::uint64_t offset, const Slice& slice, std::uintptr_t stream) override;
  bool ready(std::uint64_t ticket) override;
  void fetch(std::span<const Region> regions, std::span<const std::byte*> out) override;
  std::uint64_t fetch_limit() const noexcept override { return staging_bytes_; }
  bool staged() const noexcept override { return true; }

 private:
  void free_all() noexcept;
  cudaEvent_t take_event();

  const int device_;
  const std::uint64_t capacity_;
  const std::uint64_t staging_bytes_;
  std::byte* memory_ = nullptr;   // on the device
  std::byte* staging_ = nullptr;  // pinned, on the host
  cudaStream_t stream_ = nullptr;

  std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, cudaEvent_t> under_way_;
  std::vector<cudaEvent_t> spare_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace lockgate::cuda
