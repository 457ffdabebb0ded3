#include "sink/pipeline.h"

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "sink/registry.h"

namespace lockgate {

namespace {

constexpr double kTick = 0.010;         // seconds between two looks at the ring
constexpr double kNotArrived = 0.0002;  // seconds to wait for a copy that is under way
constexpr double kCloseGrace = 1.0;     // seconds past its limit that `close` gives the drain thread to settle
constexpr int kReplayedAtOnce = 4;      // blocks sent from disk before the ring has its turn

std::string random_prefix() {
  std::random_device source;
  const auto high = static_cast<unsigned long long>(source());
  const auto low = static_cast<unsigned long long>(source());
  char out[20];
  std::snprintf(out, sizeof out, "%08llx%08llx-", high, low);
  return out;
}

// A thread started in its scope takes no signal of the process: one taken there would run no Python handler and would
// let a sleeping main thread sleep on. Faults stay unblocked, they belong to the thread that makes them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t set;
    ::sigfillset(&set);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      ::sigdelset(&set, fault);
    }
    ::pthread_sigmask(SIG_SETMASK, &set, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Pipeline::Pipeline(const PipelineSettings& settings, std::unique_ptr<Payload> payload, std::shared_ptr<Sink> sink)
    : ring_(settings.ring, std::move(payload)),
      sink_(std::move(sink)),
      spool_(settings.spool_dir, settings.spool_bytes, sink_->target()),
      encoder_(settings.run_id, settings.model_id),
      retry_seconds_(settings.retry_seconds),
      token_prefix_(random_prefix()),
      copy_payloads_(settings.ring.policy == Policy::kDropOldest && !ring_.staged()),
      release_early_(copy_payloads_ || ring_.staged()) {}

std::shared_ptr<Pipeline> Pipeline::start(const PipelineSettings& settings, std::unique_ptr<Payload> payload,
                                          std::shared_ptr<Sink> sink) {
  if (!(settings.retry_seconds >= 0)) {
    throw std::invalid_argument("retry_seconds is " + std::to_string(settings.retry_seconds) +
                                ", expected 0 s or more");
  }
  std::shared_ptr<Pipeline> pipeline(new Pipeline(settings, std::move(payload), std::move(sink)));
  Registry::instance().add(pipeline);
  const SignalsBlocked blocked;
  // Detached: `close` waits for it with a limit, which join() cannot.
  std::thread([pipeline] { pipeline->run(); }).detach();
  return pipeline;
}

void Pipeline::run() {
  try {
    work();
  } catch (const std::exception& error) {
    // Out of memory, at worst. Nothing is taken any more, and nothing is lost from the account.
    ring_.set_error(std::string("the drain thread ended: ") + error.what());
    ring_.close();
  }
  finish();
}

void Pipeline::work() {
  std::string message;
  spool_.adopt(message);
  if (!message.empty()) ring_.set_error(std::move(message));
  Batch batch;
  std::optional<std::uint64_t> attempts_at_close;
  for (;;) {
    const bool due = ring_.wait(kTick);
    replay(kReplayedAtOnce);
    if (due) {
      ring_.take(batch);
      if (!batch.rows.empty()) {
        deliver(batch);
      } else if (out_of_time()) {
        return;  // a producer or a device that never finishes its copy
      } else {
        std::this_thread::sleep_for(std::chrono::duration<double>(kNotArrived));
      }
    }
    note_progress();
    if (!ring_.closing() || !ring_.empty()) continue;
    if (!attempts_at_close) attempts_at_close = attempts_;
    if (spool_.empty() || out_of_time()) return;
    // A sink that was given up has one more chance: it may have come back since the last attempt.
    if (given_up() && attempts_ > *attempts_at_close) return;
    std::this_thread::sleep_until(interrupt_.limit(Deadline::at(backoff_.next())).when());
  }
}

void Pipeline::deliver(const Batch& batch) {
  clickhouse::Block block;
  try {
    block = encoder_.encode(batch.rows, wall_nanoseconds(), copy_payloads_);
  } catch (const std::bad_alloc&) {
    ring_.set_error("no memory to encode a block of " + std::to_string(batch.bytes) + " bytes");
    ring_.account([&](Ledger& ledger) { ledger.fail(Fail::kFatal, batch.records(), batch.bytes); });
    ring_.release();
    return;
  }
  block.token = token_prefix_ + std::to_string(block.first_seq) + "-" + std::to_string(block.rows);
  if (release_early_) ring_.release();
  send_or_spool(block);
  if (!release_early_) ring_.release();
}

void Pipeline::send_or_spool(const clickhouse::Block& block) {
  bool tried = false;
  for (;;) {
    const bool backlog = spool_.oldest_own_seq().has_value();
    if (backlog) {
      tried = tried || backoff_.ready(Clock::now());
      replay(kReplayedAtOnce);
      if (spool_.oldest_own_seq().has_value() && to_spool(block)) return;
    } else if (backoff_.ready(Clock::now()) && !out_of_time()) {
      tried = true;
      const Outcome outcome = attempt(block);
      if (outcome.verdict == Verdict::kWritten) {
        ring_.account([&](Ledger& ledger) { ledger.write(block.rows, block.payload_bytes); });
        return;
      }
      if (outcome.verdict == Verdict::kFatal) return fail(Fail::kFatal, block);
    }
    if (given_up() || out_of_time()) {
      if (to_spool(block)) return;
      if (out_of_time()) return fail(Fail::kClosed, block);
      // Each block has its own attempt, so that the ring is not emptied into failures within an instant.
      if (tried) return fail(spool_.enabled() ? Fail::kSpool : Fail::kRetry, block);
    }
    // In small steps: `close` may set a limit in the meantime.
    const Deadline next = Deadline::at(backoff_.next()).earlier(Deadline::after(kTick));
    std::this_thread::sleep_until(next.when());
  }
}

Outcome Pipeline::attempt(const clickhouse::Block& block) {
  ++attempts_;
  Outcome outcome = sink_->send(block, interrupt_);
  reconnects_.store(sink_->reconnects(), std::memory_order_relaxed);
  if (outcome.verdict == Verdict::kRetry) {
    backoff_.failed(Clock::now());
  } else {
    backoff_.succeeded();
  }
  ring_.account([&](Ledger& ledger) {
    if (outcome.verdict == Verdict::kRetry) ++ledger.retries;
    if (outcome.verdict == Verdict::kWritten) ++ledger.blocks;
  });
  if (outcome.verdict != Verdict::kWritten) ring_.set_error(sink_->target() + ": " + outcome.message);
  return outcome;
}

bool Pipeline::to_spool(const clickhouse::Block& block) {
  if (!spool_.enabled()) return false;
  std::string message;
  if (!spool_.append(block, message)) {
    ring_.set_error(std::move(message));
    return false;
  }
  ring_.account([&](Ledger& ledger) { ledger.spool(block.rows); });
  return true;
}

void Pipeline::replay(int blocks) {
  for (; blocks > 0 && !spool_.empty() && backoff_.ready(Clock::now()) && !out_of_time(); --blocks) {
    const Spool::Entry entry = spool_.front();
    std::string message;
    const std::optional<SpooledBlock> spooled = spool_.read_front(message);
    Verdict verdict = Verdict::kFatal;
    if (spooled) {
      verdict = attempt(spooled->block).verdict;
    } else {
      ring_.set_error(std::move(message));
    }
    if (verdict == Verdict::kRetry) return;
    ring_.account([&](Ledger& ledger) {
      if (entry.adopted) {
        if (verdict == Verdict::kWritten) ledger.replayed += entry.rows;
        return;
      }
      ledger.unspool(entry.rows);
      if (verdict == Verdict::kWritten) {
        ledger.write(entry.rows, entry.payload_bytes);
      } else {
        ledger.fail(spooled ? Fail::kFatal : Fail::kSpool, entry.rows, entry.payload_bytes);
      }
    });
    // What can never be written stays on disk for a person to look at.
    spool_.pop_front(verdict == Verdict::kFatal);
  }
}

void Pipeline::fail(Fail reason, const clickhouse::Block& block) {
  ring_.account([&](Ledger& ledger) { ledger.fail(reason, block.rows, block.payload_bytes); });
}

bool Pipeline::given_up() const noexcept {
  return backoff_.failing() && backoff_.failing_for(Clock::now()) >= retry_seconds_;
}

bool Pipeline::out_of_time() const noexcept {
  return interrupt_.stopping() && interrupt_.limit(Deadline::never()).passed();
}

void Pipeline::note_progress() {
  std::uint64_t oldest = ring_.oldest_seq();
  if (const auto spooled = spool_.oldest_own_seq()) oldest = std::min(oldest, *spooled);
  const std::lock_guard lock(progress_mutex_);
  if (oldest == settled_before_) return;
  settled_before_ = oldest;
  progress_.notify_all();
}

void Pipeline::finish() {
  ring_.write_off(Fail::kClosed);
  spool_.close();
  sink_->finish();
  const std::lock_guard lock(progress_mutex_);
  finished_ = true;
  progress_.notify_all();
}

bool Pipeline::flush(double timeout) {
  if (child_.load(std::memory_order_relaxed)) return true;
  const Deadline limit = Deadline::after(timeout);
  const std::uint64_t target = ring_.snapshot().accepted;
  ring_.hurry();
  std::unique_lock lock(progress_mutex_);
  progress_.wait_until(lock, limit.when(), [&] { return finished_ || settled_before_ >= target; });
  return finished_ || settled_before_ >= target;
}

bool Pipeline::close(double timeout) {
  // First: in a child another thread's lock would never be free again.
  if (child_.load(std::memory_order_relaxed)) return true;
  const std::lock_guard one_at_a_time(close_mutex_);
  if (closed()) return clean_;
  const Deadline limit = Deadline::after(timeout);
  interrupt_.stop_by(limit);
  ring_.close();
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kCloseGrace));
  std::unique_lock lock(progress_mutex_);
  progress_.wait_until(lock, limit.when() + patience, [&] { return finished_; });
  lock.unlock();
  // A sink that hangs keeps its thread, but no record stays undecided.
  ring_.write_off(Fail::kClosed);
  clean_ = ring_.snapshot().failed_total() == 0;
  closed_.store(true, std::memory_order_release);
  return clean_;
}

void Pipeline::lock_for_fork() { ring_.lock_for_fork(); }

void Pipeline::unlock_after_fork() { ring_.unlock_after_fork(); }

void Pipeline::become_child() noexcept {
  // Spool and sink belong to the drain thread, which may have been in the middle
  // of changing them: they are left alone, their descriptors are closed by number.
  child_.store(true, std::memory_order_relaxed);
  closed_.store(true, std::memory_order_relaxed);
  ring_.become_child();
}

}  // namespace lockgate
