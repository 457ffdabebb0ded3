// The drain thread's half of `Ring`: waiting, taking, giving back.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ring/ring.h"

namespace lockgate {

bool Ring::due() noexcept {
  if (head_ == tail_) {
    aging_ = false;
    return false;
  }
  if (closing_ || waiting_ > 0 || at(tail_).seq < hurry_before_) return true;
  if (space_.used() >= wake_bytes_ || used_records() >= limits_.flush_records) return true;
  // A ring with few records must not wait for a batch that does not fit into it.
  if (2 * used_records() >= limits_.capacity_records) return true;
  if (!aging_) {
    aging_ = true;
    oldest_since_ = Clock::now();
  }
  return std::chrono::duration<double>(Clock::now() - oldest_since_).count() >= limits_.flush_seconds;
}

bool Ring::wait(double tick) {
  std::unique_lock lock(mutex_);
  if (!woken_ && !due()) work_.wait_until(lock, Deadline::after(tick).when());
  woken_ = false;
  return due();
}

void Ring::take(Batch& batch) {
  batch.rows.clear();
  batch.bytes = 0;
  regions_.clear();
  std::uint64_t claimed = 0;
  {
    const std::lock_guard lock(mutex_);
    std::uint64_t bytes = 0;
    const std::uint64_t most = std::min(limits_.flush_bytes, payload_->fetch_limit());
    for (std::uint64_t position = tail_; position < head_ && claimed < limits_.flush_records; ++position) {
      Record& record = at(position);
      const State state = record.state.load(std::memory_order_acquire);
      if (state == State::kReserved) break;
      if (state == State::kBroken) {
        if (claimed > 0) break;
        ledger_.drop(Drop::kDevice, 1, record.nbytes);
        pop();
        continue;
      }
      if (claimed > 0 && bytes + Payload::aligned(record.nbytes) > most) break;
      bytes += Payload::aligned(record.nbytes);
      ++claimed;
    }
    claimed_ = claimed;
    aging_ = false;
  }
  // Claimed records are ours alone, so the device is asked without the lock.
  std::uint64_t arrived = 0;
  for (; arrived < claimed; ++arrived) {
    Record& record = at(tail_ + arrived);
    try {
      if (!payload_->ready(record.ticket)) break;
    } catch (const std::runtime_error& error) {
      set_error(error.what());
      record.state.store(State::kBroken, std::memory_order_release);
      break;
    }
    regions_.push_back({record.offset, record.nbytes, record.ticket});
  }
  fetched_.assign(arrived, nullptr);
  try {
    payload_->fetch(regions_, fetched_);
  } catch (const std::runtime_error& error) {
    set_error(error.what());
    for (std::uint64_t i = 0; i < arrived; ++i) at(tail_ + i).state.store(State::kBroken, std::memory_order_release);
    arrived = 0;
  }
  batch.rows.reserve(arrived);
  for (std::uint64_t i = 0; i < arrived; ++i) {
    const Record& record = at(tail_ + i);
    clickhouse::Row row;
    row.request_id = record.request->id;
    row.site = record.slot->site;
    row.dtype = record.slot->dtype;
    row.layer = record.slot->layer;
    row.shard_rank = record.slot->shard_rank;
    row.call = record.call;
    row.dims = record.dims;
    row.step = record.step;
    row.seq = record.seq;
    row.token_start = record.token_start;
    row.token_end = record.token_end;
    row.shape = record.shape.data();
    row.data = fetched_[i];
    row.nbytes = record.nbytes;
    batch.rows.push_back(row);
    batch.bytes += record.nbytes;
  }
  if (arrived < claimed) {
    const std::lock_guard lock(mutex_);
    claimed_ = arrived;
  }
}

void Ring::release() {
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    for (; claimed_ > 0; --claimed_) pop();
    notify = waiting_ > 0;
  }
  if (notify) freed_.notify_all();
}

}  // namespace lockgate
