#include "common/fork_table.h"

#include <unistd.h>

#include <array>
#include <atomic>

namespace lockgate::fork_table {

namespace {

// Stores the number plus one, so that the table starts out empty without a constructor.
constinit std::array<std::atomic<int>, 1024> table{};

}  // namespace

void add(int fd) noexcept {
  for (std::atomic<int>& entry : table) {
    int none = 0;
    if (entry.compare_exchange_strong(none, fd + 1, std::memory_order_relaxed)) return;
  }
}

void remove(int fd) noexcept {
  for (std::atomic<int>& entry : table) {
    int held = fd + 1;
    if (entry.compare_exchange_strong(held, 0, std::memory_order_relaxed)) return;
  }
}

void close_all() noexcept {
  for (std::atomic<int>& entry : table) {
    const int held = entry.exchange(0, std::memory_order_relaxed);
    if (held != 0) ::close(held - 1);
  }
}

}  // namespace lockgate::fork_table
