#include "ring/ring.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockgate {

namespace {

// How long drop_oldest waits for the drain thread to let go of what it encodes.
constexpr double kEvictPatience = 0.1;
constexpr double kEvictPause = 0.001;

void require(bool holds, const char* name, const std::string& found, const char* expected) {
  if (!holds) throw std::invalid_argument(std::string(name) + " is " + found + ", expected " + expected);
}

const RingLimits& check(const RingLimits& limits) {
  require(limits.capacity_records >= 1 && limits.capacity_records <= (1u << 26), "capacity_records",
          std::to_string(limits.capacity_records), "1 to 67108864");
  require(limits.deadline >= 0, "deadline", std::to_string(limits.deadline), "0 s or more");
  require(limits.sample_every >= 1, "sample_every", std::to_string(limits.sample_every), "1 or more");
  require(limits.flush_bytes >= 1, "flush_bytes", std::to_string(limits.flush_bytes), "1 or more");
  require(limits.flush_records >= 1, "flush_records", std::to_string(limits.flush_records), "1 or more");
  require(limits.flush_fill > 0 && limits.flush_fill <= 1, "flush_fill", std::to_string(limits.flush_fill),
          "more than 0 and at most 1");
  require(limits.flush_seconds >= 0, "flush_seconds", std::to_string(limits.flush_seconds), "0 s or more");
  return limits;
}

}  // namespace

Ring::Ring(const RingLimits& limits, std::unique_ptr<Payload> payload)
    : limits_(check(limits)),
      payload_(std::move(payload)),
      wake_bytes_(std::min(limits.flush_bytes,
                           static_cast<std::uint64_t>(limits.flush_fill * static_cast<double>(payload_->capacity())))),
      records_(limits.capacity_records),
      space_(payload_->capacity()) {}

std::uint32_t Ring::declare(std::string site, std::int16_t layer, std::uint16_t shard_rank, std::string dtype) {
  const std::lock_guard lock(mutex_);
  return names_.declare(std::move(site), layer, shard_rank, std::move(dtype));
}

std::uint32_t Ring::request(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return names_.request(id);
}

void Ring::forget(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  names_.forget(number);
}

std::uint64_t Ring::add_plan(Plan plan) {
  const std::lock_guard lock(mutex_);
  for (const PlanRow& row : plan.rows) names_.find_request(row.request);
  return plans_.add(std::move(plan));
}

std::shared_ptr<const Plan> Ring::find_plan(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  auto plan = plans_.find(number);
  for (const PlanRow& row : plan->rows) names_.find_request(row.request);
  return plan;
}

std::uint32_t Ring::item_bytes(std::uint32_t slot) const {
  const std::lock_guard lock(mutex_);
  return names_.slot(slot).item_bytes;
}

Admission Ring::push(const Header& header, const Slice& slice, std::uintptr_t stream, bool may_wait) {
  const std::uint64_t nbytes = slice.bytes();
  const std::uint64_t size = Payload::aligned(nbytes);
  Record* record = nullptr;
  bool wake = false;
  {
    std::unique_lock lock(mutex_);
    const Slot& slot = names_.slot(header.slot);
    names_.find_request(header.request);
    const std::uint64_t elements = header.shape.elements();
    if (elements > UINT64_MAX / slot.item_bytes || elements * slot.item_bytes != nbytes) {
      throw std::invalid_argument("a record of " + std::to_string(nbytes) + " bytes does not hold " +
                                  std::to_string(elements) + " elements of " + slot.dtype + " (" +
                                  std::to_string(slot.item_bytes) + " bytes each)");
    }
    const Admission admission = make_room(lock, size, nbytes, may_wait);
    if (admission != Admission::kIn) return admission;
    record = &admit(header, size, nbytes);
    wake = !woken_ && (space_.used() >= wake_bytes_ || used_records() >= limits_.flush_records ||
                       2 * used_records() >= limits_.capacity_records);
    woken_ = woken_ || wake;
  }
  // Nobody else touches the record until its state is set: it can neither be taken nor evicted.
  State state = State::kCommitted;
  try {
    record->ticket = payload_->write(record->offset, slice, stream);
  } catch (const std::runtime_error& error) {
    state = State::kBroken;
    set_error(error.what());
  }
  // Release: who sees the state also sees the bytes and the ticket.
  record->state.store(state, std::memory_order_release);
  if (wake) work_.notify_one();
  return state == State::kCommitted ? Admission::kIn : Admission::kDropped;
}

bool Ring::fits(std::uint64_t size) const noexcept {
  return used_records() < limits_.capacity_records && space_.fits(size);
}

Admission Ring::refuse(Drop reason, std::uint64_t nbytes) {
  ledger_.refuse(reason, nbytes);
  return Admission::kDropped;
}

Admission Ring::make_room(std::unique_lock<std::mutex>& lock, std::uint64_t size, std::uint64_t nbytes, bool may_wait) {
  if (closing_) return refuse(Drop::kClosed, nbytes);
  if (size > payload_->capacity() || size > payload_->fetch_limit()) {
    last_error_ = "a record of " + std::to_string(nbytes) + " bytes is larger than the ring of " +
                  std::to_string(std::min(payload_->capacity(), payload_->fetch_limit())) +
                  " bytes and was dropped; raise capacity_bytes or capture less of the tensor";
    return refuse(Drop::kOversize, nbytes);
  }
  if (limits_.policy == Policy::kSample &&
      (2 * space_.used() >= payload_->capacity() || 2 * used_records() >= limits_.capacity_records) &&
      sampled_++ % limits_.sample_every != 0) {
    return refuse(Drop::kSample, nbytes);
  }
  if (fits(size)) return Admission::kIn;
  switch (limits_.policy) {
    case Policy::kDropNewest:
    case Policy::kSample:
      return refuse(Drop::kNewest, nbytes);
    case Policy::kDropOldest:
      while (!fits(size) && evict_oldest()) {
      }
      if (fits(size)) return Admission::kIn;
      if (!may_wait) return Admission::kWouldWait;
      if (const Deadline limit = Deadline::after(kEvictPatience); true) {
        while (!closing_ && !fits(size)) {
          if (evict_oldest()) continue;
          if (!wait_for_room(lock, size, limit)) return refuse(closing_ ? Drop::kClosed : Drop::kNewest, nbytes);
        }
      }
      break;
    case Policy::kBlock:
      if (!may_wait) return Admission::kWouldWait;
      if (!wait_for_room(lock, size, Deadline::after(limits_.deadline))) {
        return refuse(closing_ ? Drop::kClosed : Drop::kDeadline, nbytes);
      }
      break;
  }
  return closing_ ? refuse(Drop::kClosed, nbytes) : Admission::kIn;
}

bool Ring::evict_oldest() {
  if (head_ == tail_ || claimed_ > 0) return false;
  const Record& oldest = at(tail_);
  const State state = oldest.state.load(std::memory_order_acquire);
  if (state == State::kReserved) return false;
  Drop reason = state == State::kBroken ? Drop::kDevice : Drop::kOldest;
  try {
    // A device that still writes there must not share the room with the next record.
    if (reason == Drop::kOldest && !payload_->ready(oldest.ticket)) return false;
  } catch (const std::runtime_error& error) {
    last_error_ = error.what();
    reason = Drop::kDevice;
  }
  ledger_.drop(reason, 1, oldest.nbytes);
  pop();
  return true;
}

bool Ring::wait_for_room(std::unique_lock<std::mutex>& lock, std::uint64_t size, Deadline limit) {
  ++waiting_;
  work_.notify_one();
  if (limits_.policy == Policy::kDropOldest) {
    // Another producer's copy ends without a signal, so look again soon.
    freed_.wait_until(lock, limit.earlier(Deadline::after(kEvictPause)).when());
    --waiting_;
    return !closing_ && !limit.passed();
  }
  while (!closing_ && !fits(size) && freed_.wait_until(lock, limit.when()) == std::cv_status::no_timeout) {
  }
  --waiting_;
  return !closing_ && fits(size);
}

Ring::Record& Ring::admit(const Header& header, std::uint64_t size, std::uint64_t nbytes) {
  Record& record = at(head_);
  Request& request = names_.find_request(header.request);
  names_.hold(request);
  record.seq = ledger_.accept(nbytes);
  record.step = header.step;
  record.slot = &names_.slot(header.slot);
  record.request = &request;
  const Space::Taken taken = space_.take(size);
  record.offset = taken.offset;
  record.nbytes = nbytes;
  record.charge = taken.charge;
  record.token_start = header.token_start;
  record.ticket = 0;
  record.token_end = header.token_end;
  record.call = header.call;
  record.request_number = header.request;
  record.shape = header.shape.of;
  record.dims = static_cast<std::uint8_t>(header.shape.dims);
  record.state.store(State::kReserved, std::memory_order_relaxed);
  ++head_;
  ledger_.peak_bytes = std::max(ledger_.peak_bytes, space_.used());
  ledger_.peak_records = std::max(ledger_.peak_records, used_records());
  return record;
}

void Ring::pop() noexcept {
  Record& record = at(tail_);
  names_.let_go(record.request_number);
  space_.give_back(record.charge);
  ++tail_;
}

void Ring::lost(Drop reason, std::uint64_t records) {
  const std::lock_guard lock(mutex_);
  ledger_.refuse(reason, 0, records);
}

void Ring::lost(Fail reason, std::uint64_t records) {
  const std::lock_guard lock(mutex_);
  ledger_.fail_outside(reason, records);
}

void Ring::close() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  if (child_.load(std::memory_order_relaxed)) return;
  woken_ = true;
  work_.notify_all();
  freed_.notify_all();
}

bool Ring::closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

bool Ring::empty() const {
  const std::lock_guard lock(mutex_);
  return head_ == tail_;
}

void Ring::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  work_.notify_all();
}

void Ring::hurry() {
  const std::lock_guard lock(mutex_);
  hurry_before_ = ledger_.accepted;
  woken_ = true;
  work_.notify_all();
}

Ledger Ring::snapshot() const {
  const std::lock_guard lock(mutex_);
  return ledger_;
}

std::uint64_t Ring::oldest_seq() const {
  const std::lock_guard lock(mutex_);
  return head_ == tail_ ? ledger_.accepted : records_[tail_ % limits_.capacity_records].seq;
}

std::string Ring::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

void Ring::set_error(std::string message) {
  const std::lock_guard lock(mutex_);
  last_error_ = std::move(message);
}

void Ring::write_off(Fail reason) {
  const std::lock_guard lock(mutex_);
  if (written_off_) return;
  written_off_ = true;
  // What lies on disk is not lost yet: a later process can still send it.
  const std::uint64_t spooled = std::min(ledger_.spooled, ledger_.pending);
  ledger_.fail(Fail::kLeftInSpool, spooled, 0);
  ledger_.fail(reason, ledger_.pending, ledger_.bytes_pending);
  ledger_.spooled = 0;
}

bool Ring::written_off() const {
  const std::lock_guard lock(mutex_);
  return written_off_;
}

void Ring::become_child() noexcept {
  child_.store(true, std::memory_order_relaxed);
  closing_ = true;
  written_off_ = true;
  ledger_ = Ledger{};
  head_ = tail_ = claimed_ = waiting_ = 0;
  space_.clear();
  last_error_.clear();
}

}  // namespace lockgate
