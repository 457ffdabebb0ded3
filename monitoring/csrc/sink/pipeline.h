// A ring, its drain thread and its sink.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "clickhouse/encoder.h"
#include "common/interrupt.h"
#include "ring/ring.h"
#include "sink/backoff.h"
#include "sink/sink.h"
#include "sink/spool.h"

namespace lockgate {

struct PipelineSettings {
  RingLimits ring;
  std::string run_id;
  std::string model_id;
  double retry_seconds = 10.0;
  std::string spool_dir;
  std::uint64_t spool_bytes = 1u << 30;
};

// Made by `start`, shared by its owner and its drain thread, so that neither
// outlives the other's needs: a thread that hangs in a sink does not hold up
// `close` past its limit. Thread-safe.
class Pipeline : public std::enable_shared_from_this<Pipeline> {
 public:
  // Throws std::invalid_argument or std::runtime_error, and leaves nothing behind.
  static std::shared_ptr<Pipeline> start(const PipelineSettings& settings, std::unique_ptr<Payload> payload,
                                         std::shared_ptr<Sink> sink);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  Ring& ring() noexcept { return ring_; }
  const Ring& ring() const noexcept { return ring_; }

  // Send what was accepted until now; whether all of it is settled in time.
  bool flush(double timeout);
  // Send what is left and stop; whether nothing failed. The second call returns the first answer.
  bool close(double timeout);
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

  std::uint64_t reconnects() const noexcept { return reconnects_.load(std::memory_order_relaxed); }

  // Around fork, see `registry.h`.
  void lock_for_fork();
  void unlock_after_fork();
  void become_child() noexcept;
  void drop_callbacks() { sink_->drop_callbacks(); }

 private:
  Pipeline(const PipelineSettings& settings, std::unique_ptr<Payload> payload, std::shared_ptr<Sink> sink);

  // The drain thread. Not noexcept: see `Sink`.
  void run();
  void work();
  void deliver(const Batch& batch);
  void send_or_spool(const clickhouse::Block& block);
  Outcome attempt(const clickhouse::Block& block);
  bool to_spool(const clickhouse::Block& block);
  void replay(int blocks);
  void fail(Fail reason, const clickhouse::Block& block);
  bool given_up() const noexcept;
  bool out_of_time() const noexcept;
  void note_progress();
  void finish();

  Ring ring_;
  std::shared_ptr<Sink> sink_;
  Spool spool_;
  const clickhouse::Encoder encoder_;
  const double retry_seconds_;
  const std::string token_prefix_;
  const bool copy_payloads_;  // so that the ring is free while a block is on its way
  const bool release_early_;
  Interrupt interrupt_;
  Backoff backoff_;
  std::uint64_t attempts_ = 0;

  // What flush and close wait for; guarded by `progress_mutex_`.
  std::mutex progress_mutex_;
  std::condition_variable progress_;
  std::uint64_t settled_before_ = 0;  // all records of lower numbers are settled
  bool finished_ = false;
  std::mutex close_mutex_;  // one close at a time
  bool clean_ = false;
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> reconnects_{0};
  std::atomic<bool> child_{false};
};

}  // namespace lockgate
