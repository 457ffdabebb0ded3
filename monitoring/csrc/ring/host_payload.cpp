#include "ring/host_payload.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace lockgate {

HostPayload::HostPayload(std::uint64_t capacity) : capacity_(capacity / kAlignment * kAlignment) {
  if (capacity_ == 0)
    throw std::runtime_error("capacity_bytes is " + std::to_string(capacity) + ", expected at least 64");
  void* memory = ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("cannot get " + std::to_string(capacity_) +
                             " bytes for the ring: " + std::strerror(errno));
  }
  // Large pages where the system has them: a ring is written from end to end, over and over.
  ::madvise(memory, capacity_, MADV_HUGEPAGE);
  // A forked child's ring is closed and never reads this; without the advice
  // every page would be copied once more in the parent after a fork.
  ::madvise(memory, capacity_, MADV_DONTFORK);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (std::uint64_t at = 0; at < capacity_; at += page) static_cast<volatile char*>(memory)[at] = 0;
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
