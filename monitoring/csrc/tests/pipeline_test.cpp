#include "sink/pipeline.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "check.h"
#include "ring/host_payload.h"
#include "sink/backoff.h"
#include "sink/null_sink.h"
#include "sink/registry.h"
#include "support.h"

using namespace lockgate;
using lockgate::testing::eventually;
using lockgate::testing::SteeredSink;
using lockgate::testing::TemporaryFolder;

namespace {

PipelineSettings quick(Policy policy = Policy::kBlock) {
  PipelineSettings settings;
  settings.ring.policy = policy;
  settings.ring.capacity_records = 256;
  settings.ring.flush_bytes = 4096;
  settings.ring.flush_seconds = 0.0;
  settings.ring.deadline = 5.0;
  settings.run_id = "run";
  settings.retry_seconds = 0.0;
  return settings;
}

std::shared_ptr<Pipeline> start(const PipelineSettings& settings, std::shared_ptr<Sink> sink) {
  auto pipeline = Pipeline::start(settings, std::make_unique<HostPayload>(1 << 16), std::move(sink));
  pipeline->ring().declare("site", 0, 0, "uint8");
  pipeline->ring().request("request");
  return pipeline;
}

Admission push(Pipeline& pipeline, std::size_t nbytes = 64) {
  static const std::vector<std::byte> memory(1 << 20, std::byte{3});
  Header header;
  header.shape.dims = 1;
  header.shape.of[0] = static_cast<std::uint32_t>(nbytes);
  return pipeline.ring().push(header, {memory.data(), 1, nbytes, nbytes}, 0, true);
}

void balanced(const Pipeline& pipeline) {
  const Ledger ledger = pipeline.ring().snapshot();
  CHECK_EQUAL(ledger.accepted, ledger.written + ledger.dropped_total() + ledger.failed_total() + ledger.pending);
  CHECK(ledger.spooled <= ledger.pending);
}

}  // namespace

TEST(backoff_doubles_to_its_limit_and_starts_again_after_success) {
  Backoff backoff;
  const Clock::time_point zero{};
  CHECK(backoff.ready(zero));
  backoff.failed(zero);
  CHECK(backoff.next() - zero == Backoff::kFirst);
  CHECK(!backoff.ready(zero));
  for (int i = 0; i < 20; ++i) backoff.failed(backoff.next());
  const Clock::time_point late = backoff.next();
  backoff.failed(late);
  CHECK(backoff.next() - late == Backoff::kLongest);
  CHECK(backoff.failing_for(late) > 10.0);
  backoff.succeeded();
  CHECK(backoff.ready(zero));
  CHECK_EQUAL(backoff.failing_for(late), 0.0);
}

TEST(what_is_pushed_is_written) {
  auto sink = std::make_shared<SteeredSink>();
  auto pipeline = start(quick(), sink);
  for (int i = 0; i < 1000; ++i) CHECK(push(*pipeline, static_cast<std::size_t>(i)) == Admission::kIn);
  CHECK(pipeline->flush(10.0));
  CHECK_EQUAL(sink->rows.load(), 1000u);
  CHECK(pipeline->close(10.0));
  CHECK(pipeline->close(0.0));
  balanced(*pipeline);
}

TEST(threads_push_flush_read_and_close_at_once) {
  for (const Policy policy : {Policy::kBlock, Policy::kDropOldest}) {
    auto sink = std::make_shared<SteeredSink>();
    auto pipeline = start(quick(policy), sink);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = 0; i < 500; ++i) push(*pipeline, i * 13 % 9000);
      });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) balanced(*pipeline);
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) pipeline->flush(0.01);
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        sink->verdict = i % 3 == 0 ? Verdict::kRetry : Verdict::kWritten;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      sink->verdict = Verdict::kWritten;
    });
    for (std::thread& thread : threads) thread.join();
    pipeline->close(10.0);
    const Ledger ledger = pipeline->ring().snapshot();
    CHECK_EQUAL(ledger.accepted, 1500u);
    CHECK_EQUAL(ledger.pending, 0u);
    CHECK_EQUAL(ledger.written, sink->rows.load());
    balanced(*pipeline);
  }
}

TEST(a_dead_sink_fills_the_spool_and_a_living_one_empties_it) {
  const TemporaryFolder folder;
  auto sink = std::make_shared<SteeredSink>();
  sink->verdict = Verdict::kRetry;
  PipelineSettings settings = quick();
  settings.spool_dir = folder.path();
  auto pipeline = start(settings, sink);
  for (int i = 0; i < 20; ++i) push(*pipeline, 4000);
  CHECK(eventually([&] { return pipeline->ring().snapshot().spooled == 20; }));
  balanced(*pipeline);
  CHECK(!pipeline->flush(0.05));
  sink->verdict = Verdict::kWritten;
  CHECK(pipeline->flush(20.0));
  CHECK_EQUAL(sink->rows.load(), 20u);
  CHECK(pipeline->close(5.0));
}

TEST(a_refused_block_fails_alone) {
  auto sink = std::make_shared<SteeredSink>();
  sink->verdict = Verdict::kFatal;
  auto pipeline = start(quick(), sink);
  push(*pipeline);
  CHECK(pipeline->flush(10.0));
  sink->verdict = Verdict::kWritten;
  push(*pipeline);
  CHECK(pipeline->flush(10.0));
  const Ledger ledger = pipeline->ring().snapshot();
  CHECK_EQUAL(ledger.written, 1u);
  CHECK_EQUAL(ledger.failed[static_cast<std::size_t>(Fail::kFatal)], 1u);
  CHECK(!pipeline->close(5.0));
}

TEST(closing_with_a_dead_sink_ends_in_time_with_every_record_decided) {
  auto sink = std::make_shared<SteeredSink>();
  sink->verdict = Verdict::kRetry;
  PipelineSettings settings = quick();
  settings.retry_seconds = 100.0;
  auto pipeline = start(settings, sink);
  for (int i = 0; i < 10; ++i) push(*pipeline, 4000);
  const Deadline patience = Deadline::after(5.0);
  CHECK(!pipeline->close(0.1));
  CHECK(!patience.passed());
  CHECK_EQUAL(pipeline->ring().snapshot().failed[static_cast<std::size_t>(Fail::kClosed)], 10u);
  balanced(*pipeline);
}

TEST(the_owner_may_go_first) {
  auto sink = std::make_shared<SteeredSink>();
  auto pipeline = start(quick(), sink);
  push(*pipeline);
  std::weak_ptr<Pipeline> alive = pipeline;
  pipeline->close(5.0);
  pipeline.reset();
  CHECK(eventually([&] { return alive.expired(); }));
  CHECK_EQUAL(sink->rows.load(), 1u);
}

TEST(close_all_closes_what_is_open) {
  auto pipeline = start(quick(), std::make_shared<NullSink>());
  push(*pipeline);
  Registry::instance().close_all(5.0);
  CHECK(pipeline->closed());
  CHECK_EQUAL(pipeline->ring().snapshot().written, 1u);
}

TEST(a_forked_child_has_a_closed_empty_ring) {
  auto pipeline = start(quick(), std::make_shared<NullSink>());
  push(*pipeline);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool right = push(*pipeline) == Admission::kDropped && pipeline->closed() && pipeline->flush(1.0) &&
                       pipeline->close(1.0) && pipeline->ring().snapshot().accepted == 1;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  CHECK_EQUAL(::waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
  push(*pipeline);
  CHECK(pipeline->close(5.0));
  CHECK_EQUAL(pipeline->ring().snapshot().written, 2u);
}

TEST_MAIN
