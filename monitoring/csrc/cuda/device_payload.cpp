#include "cuda/device_payload.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/check.h"
#include "cuda/copy_runs.h"
#include "cuda/cuda.h"
#include "cuda/device_guard.h"

namespace lockgate::cuda {

namespace {

int check_device(int device) {
  const int count = device_count();
  if (device >= count) {
    throw std::runtime_error("there is no CUDA device " + std::to_string(device) + ": " + status());
  }
  return device;
}

}  // namespace

DevicePayload::DevicePayload(int device, std::uint64_t capacity_bytes)
    : device_(check_device(device)),
      capacity_(capacity_bytes / kAlignment * kAlignment),
      staging_bytes_(std::min(capacity_, kMostStaging)) {
  const DeviceGuard guard(device_);
  try {
    LOCKGATE_CUDA(cudaMalloc(reinterpret_cast<void**>(&memory_), capacity_));
    LOCKGATE_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&staging_), staging_bytes_, cudaHostAllocDefault));
    LOCKGATE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  } catch (...) {
    free_all();
    throw;
  }
}

DevicePayload::~DevicePayload() {
  int before = 0;
  LOCKGATE_CUDA_NOTHROW(cudaGetDevice(&before));
  LOCKGATE_CUDA_NOTHROW(cudaSetDevice(device_));
  // A producer's kernel may still write into the memory that is about to go.
  LOCKGATE_CUDA_NOTHROW(cudaDeviceSynchronize());
  free_all();
  LOCKGATE_CUDA_NOTHROW(cudaSetDevice(before));
}

void DevicePayload::free_all() noexcept {
  for (const auto& [ticket, event] : under_way_) LOCKGATE_CUDA_NOTHROW(cudaEventDestroy(event));
  for (const cudaEvent_t event : spare_) LOCKGATE_CUDA_NOTHROW(cudaEventDestroy(event));
  if (stream_ != nullptr) LOCKGATE_CUDA_NOTHROW(cudaStreamDestroy(stream_));
  if (staging_ != nullptr) LOCKGATE_CUDA_NOTHROW(cudaFreeHost(staging_));
  if (memory_ != nullptr) LOCKGATE_CUDA_NOTHROW(cudaFree(memory_));
}

cudaEvent_t DevicePayload::take_event() {
  if (!spare_.empty()) {
    const cudaEvent_t event = spare_.back();
    spare_.pop_back();
    return event;
  }
  cudaEvent_t event = nullptr;
  LOCKGATE_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

std::uint64_t DevicePayload::write(std::uint64_t offset, const Slice& slice, std::uintptr_t stream_number) {
  if (slice.bytes() == 0) return 0;
  const DeviceGuard guard(device_);
  const auto stream = reinterpret_cast<cudaStream_t>(stream_number);
  // A captured kernel would run again at every replay, into room that is no longer ours.
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  LOCKGATE_CUDA(cudaStreamIsCapturing(stream, &capturing));
  if (capturing != cudaStreamCaptureStatusNone) {
    throw std::runtime_error(
        "a CUDA graph is being captured on this stream, and records inside a graph would be wrong at "
        "every replay; capture without CUDA graphs (torch.compile without mode='reduce-overhead')");
  }
  LOCKGATE_CUDA(copy_runs(slice, memory_ + offset, stream));
  const std::lock_guard lock(mutex_);
  const cudaEvent_t event = take_event();
  const cudaError_t recorded = cudaEventRecord(event, stream);
  if (recorded != cudaSuccess) {
    spare_.push_back(event);
    LOCKGATE_CUDA(recorded);
  }
  under_way_.emplace(next_ticket_, event);
  return next_ticket_++;
}

bool DevicePayload::ready(std::uint64_t ticket) {
  if (ticket == 0) return true;  // nothing to copy
  const DeviceGuard guard(device_);
  const std::lock_guard lock(mutex_);
  const auto found = under_way_.find(ticket);
  if (found == under_way_.end()) return true;  // asked before
  const cudaError_t state = cudaEventQuery(found->second);
  if (state == cudaErrorNotReady) {
    LOCKGATE_CUDA_NOTHROW(cudaGetLastError());
    return false;
  }
  spare_.push_back(found->second);
  under_way_.erase(found);
  LOCKGATE_CUDA(state);
  return true;
}

void DevicePayload::fetch(std::span<const Region> regions, std::span<const std::byte*> out) {
  if (regions.empty()) return;
  const DeviceGuard guard(device_);
  std::uint64_t used = 0;
  for (std::size_t first = 0; first < regions.size();) {
    // Records that lie one behind the other travel in one copy.
    const std::uint64_t start = regions[first].offset;
    std::uint64_t end = start;
    std::size_t next = first;
    for (; next < regions.size() && regions[next].offset == aligned(end); ++next) {
      out[next] = staging_ + used + (regions[next].offset - start);
      end = regions[next].offset + regions[next].size;
    }
    if (end > start) {
      LOCKGATE_CUDA(cudaMemcpyAsync(staging_ + used, memory_ + start, end - start, cudaMemcpyDeviceToHost, stream_));
    }
    used += aligned(end - start);
    first = next;
  }
  LOCKGATE_CUDA(cudaStreamSynchronize(stream_));
}

std::unique_ptr<Payload> make_payload(int device, std::uint64_t capacity_bytes) {
  return std::make_unique<DevicePayload>(device, capacity_bytes);
}

}  // namespace lockgate::cuda
