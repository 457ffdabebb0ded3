// The bounded ring of records between producers and one drain thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "clickhouse/row.h"
#include "common/clock.h"
#include "ring/ledger.h"
#include "ring/names.h"
#include "ring/payload.h"
#include "ring/plan.h"
#include "ring/policy.h"
#include "ring/space.h"

namespace lockgate {

struct RingLimits {
  std::uint64_t capacity_records = 65536;
  Policy policy = Policy::kBlock;
  double deadline = 5.0;  // seconds that "block" waits
  std::uint64_t sample_every = 10;
  // A batch is due from any of these on; times in seconds.
  std::uint64_t flush_bytes = 4u << 20;
  std::uint64_t flush_records = 16384;
  double flush_fill = 0.5;
  double flush_seconds = 1.0;
};

// What identifies one record, apart from its bytes.
struct Header {
  std::uint32_t slot = 0;
  std::uint32_t request = 0;
  std::uint16_t call = 0;
  std::uint32_t token_start = 0;
  std::uint32_t token_end = 0;
  std::uint64_t step = 0;
  Extents shape;
};

enum class Admission { kIn, kDropped, kWouldWait };

// The oldest records, claimed by the drain thread. Rows are views into the ring.
struct Batch {
  std::vector<clickhouse::Row> rows;
  std::uint64_t bytes = 0;
  std::uint64_t records() const noexcept { return rows.size(); }
};

// First in, first out. Any thread may push, one thread takes. Room is reserved
// under a short lock, the bytes are copied outside it, then a flag commits the
// record. Pushes wake the drain thread at a batch threshold only; a timer does
// the rest. Methods throw std::invalid_argument for numbers that were never
// given out; nothing is counted then.
class Ring {
 public:
  // Throws std::invalid_argument for limits that cannot work.
  Ring(const RingLimits& limits, std::unique_ptr<Payload> payload);

  std::uint32_t declare(std::string site, std::int16_t layer, std::uint16_t shard_rank, std::string dtype);
  std::uint32_t request(const std::string& id);
  void forget(std::uint32_t number);
  std::uint64_t add_plan(Plan plan);
  std::shared_ptr<const Plan> find_plan(std::uint64_t number) const;
  std::uint32_t item_bytes(std::uint32_t slot) const;

  // Producers. Without `may_wait` a push that has to wait does and counts nothing and says kWouldWait.
  Admission push(const Header& header, const Slice& slice, std::uintptr_t stream, bool may_wait);
  void lost(Drop reason, std::uint64_t records);
  void lost(Fail reason, std::uint64_t records);

  // The drain thread. `wait` returns when a batch is due, when something was
  // asked for, or after `tick` seconds; whether a batch is due.
  bool wait(double tick);
  // Claim the oldest arrived records, at most `flush_records` and `flush_bytes` (but at least one).
  void take(Batch& batch);
  // Give the claimed records' room back; their rows end here. Their account stays pending.
  void release();

  // Anyone. From `close` on pushes are dropped with the reason "closed".
  void close();
  bool closing() const;
  bool empty() const;
  void wake();
  // Make everything accepted so far due at once.
  void hurry();
  // Keep the account: run `action(ledger)` under the lock, unless it was written off.
  template <typename Action>
  void account(Action action) {
    const std::lock_guard lock(mutex_);
    if (!written_off_) action(ledger_);
  }
  Ledger snapshot() const;
  // Sequence number of the oldest record in the ring; the next one to come when it is empty.
  std::uint64_t oldest_seq() const;
  std::string last_error() const;
  void set_error(std::string message);
  // All pending records become failed; later results are not counted any more.
  void write_off(Fail reason);
  bool written_off() const;

  // Whether a batch stays readable after `release`, until the next `take`. Its rows do not.
  bool staged() const noexcept { return payload_->staged(); }
  std::uint64_t capacity_bytes() const noexcept { return payload_->capacity(); }
  const RingLimits& limits() const noexcept { return limits_; }

  // Around fork: the parent's lock is held while it forks, so that the child's copy is whole.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  // In the child: closed and empty. No method may wait or wake here any more.
  void become_child() noexcept;

 private:
  enum class State : std::uint8_t { kReserved, kCommitted, kBroken };
  struct Record {
    std::uint64_t seq = 0;
    std::uint64_t step = 0;
    const Slot* slot = nullptr;
    const Request* request = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t nbytes = 0;
    std::uint64_t charge = 0;  // room taken, with alignment and what was skipped at the end
    std::uint64_t ticket = 0;
    std::uint32_t token_start = 0;
    std::uint32_t token_end = 0;
    std::uint32_t request_number = 0;
    std::uint16_t call = 0;
    std::array<std::uint32_t, kMaxDims> shape{};
    std::uint8_t dims = 0;
    std::atomic<State> state{State::kReserved};
  };
  static_assert(sizeof(Record) <= 128, "a record fits into two cache lines");

  Record& at(std::uint64_t position) noexcept { return records_[position % limits_.capacity_records]; }
  std::uint64_t used_records() const noexcept { return head_ - tail_; }
  bool fits(std::uint64_t size) const noexcept;
  // Nothing: the record may go in. Under the lock, which it may leave to wait.
  Admission make_room(std::unique_lock<std::mutex>& lock, std::uint64_t size, std::uint64_t nbytes, bool may_wait);
  bool evict_oldest();
  bool wait_for_room(std::unique_lock<std::mutex>& lock, std::uint64_t size, Deadline limit);
  Record& admit(const Header& header, std::uint64_t size, std::uint64_t nbytes);
  Admission refuse(Drop reason, std::uint64_t nbytes);
  void pop() noexcept;
  bool due() noexcept;

  const RingLimits limits_;
  const std::unique_ptr<Payload> payload_;
  const std::uint64_t wake_bytes_;
  std::vector<Record> records_;

  mutable std::mutex mutex_;
  std::condition_variable work_;   // the drain thread waits here
  std::condition_variable freed_;  // producers wait here
  // All below: under the lock. Positions only grow.
  Names names_;
  Plans plans_;
  Ledger ledger_;
  Space space_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t claimed_ = 0;
  std::uint64_t waiting_ = 0;
  std::uint64_t sampled_ = 0;
  std::uint64_t hurry_before_ = 0;
  Clock::time_point oldest_since_{};
  bool aging_ = false;
  bool woken_ = false;
  bool closing_ = false;
  bool written_off_ = false;
  std::string last_error_;

  std::vector<Region> regions_;  // the drain thread's own
  std::vector<const std::byte*> fetched_;
  std::atomic<bool> child_{false};
};

}  // namespace lockgate
