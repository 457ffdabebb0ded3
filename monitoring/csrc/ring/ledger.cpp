#include "ring/ledger.h"

#include <numeric>

namespace lockgate {

std::uint64_t Ledger::accept(std::uint64_t bytes) noexcept {
  ++pending;
  bytes_accepted += bytes;
  bytes_pending += bytes;
  return accepted++;
}

void Ledger::refuse(Drop reason, std::uint64_t bytes, std::uint64_t records) noexcept {
  accepted += records;
  bytes_accepted += bytes;
  dropped[static_cast<std::size_t>(reason)] += records;
}

void Ledger::fail_outside(Fail reason, std::uint64_t records) noexcept {
  accepted += records;
  failed[static_cast<std::size_t>(reason)] += records;
}

void Ledger::drop(Drop reason, std::uint64_t records, std::uint64_t bytes) noexcept {
  pending -= records;
  bytes_pending -= bytes;
  dropped[static_cast<std::size_t>(reason)] += records;
}

void Ledger::write(std::uint64_t records, std::uint64_t bytes) noexcept {
  pending -= records;
  bytes_pending -= bytes;
  written += records;
  bytes_written += bytes;
}

void Ledger::fail(Fail reason, std::uint64_t records, std::uint64_t bytes) noexcept {
  pending -= records;
  bytes_pending -= bytes;
  failed[static_cast<std::size_t>(reason)] += records;
}

std::uint64_t Ledger::dropped_total() const noexcept {
  return std::accumulate(dropped.begin(), dropped.end(), std::uint64_t{0});
}

std::uint64_t Ledger::failed_total() const noexcept {
  return std::accumulate(failed.begin(), failed.end(), std::uint64_t{0});
}

}  // namespace lockgate
