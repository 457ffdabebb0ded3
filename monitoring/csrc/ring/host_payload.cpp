#include "ring/host_payload.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace lockgate {

HostPayload::HostPayload(std::uint64_t capacity) : capacity_(capacity / kAlignment * kAlignment) {
  if (capacity_ == 0) throw std::runtime_error("capacity_bytes is " + std::to_string(capacity) + ", expected at least 64");
  void* memory = ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("cannot get " + std::to_string(capacity_) + " bytes for the ring: " + std::strerror(errno));
  }
  // A forked child's ring is closed and never reads this; without the advice
  // every page would be copied once more in the parent after a fork.
  ::madvise(memory, capacity_, MADV_DONTFORK);
  memory_ = static_cast<std::byte*>(memory);
}

HostPayload::~HostPayload() { ::munmap(memory_, capacity_); }

std::uint64_t HostPayload::write(std::uint64_t offset, const Slice& slice, std::uintptr_t) {
  copy_slice(slice, memory_ + offset);
  return 0;
}

void HostPayload::fetch(std::span<const Region> regions, std::span<const std::byte*> out) {
  for (std::size_t i = 0; i < regions.size(); ++i) out[i] = memory_ + regions[i].offset;
}

}  // namespace lockgate
