#include "ring/ring.h"

#include <array>
#include <thread>

#include "check.h"
#include "ring/host_payload.h"
#include "support.h"

using namespace lockgate;

namespace {

std::unique_ptr<Ring> make(Policy policy, std::uint64_t bytes = 4096, std::uint64_t records = 64) {
  RingLimits limits;
  limits.policy = policy;
  limits.deadline = 0.02;
  limits.capacity_records = records;
  limits.flush_bytes = 1024;
  limits.sample_every = 4;
  auto ring = std::make_unique<Ring>(limits, std::make_unique<HostPayload>(bytes));
  ring->declare("site", 0, 0, "uint8");
  ring->request("request");
  return ring;
}

Admission push(Ring& ring, std::size_t nbytes, bool may_wait = true) {
  static const std::vector<std::byte> memory(1 << 20, std::byte{3});
  Header header;
  header.shape.dims = 1;
  header.shape.of[0] = static_cast<std::uint32_t>(nbytes);
  return ring.push(header, {memory.data(), 1, nbytes, nbytes}, 0, may_wait);
}

void balanced(const Ring& ring) {
  const Ledger ledger = ring.snapshot();
  CHECK_EQUAL(ledger.accepted, ledger.written + ledger.dropped_total() + ledger.failed_total() + ledger.pending);
}

// As the drain thread does, with everything written.
std::uint64_t drain(Ring& ring) {
  Batch batch;
  ring.take(batch);
  ring.account([&](Ledger& ledger) { ledger.write(batch.records(), batch.bytes); });
  ring.release();
  return batch.records();
}

}  // namespace

TEST(records_come_out_in_order_with_their_bytes) {
  auto ring = make(Policy::kBlock);
  for (const std::size_t size : {0u, 1u, 64u, 100u}) CHECK(push(*ring, size) == Admission::kIn);
  Batch batch;
  ring->take(batch);
  CHECK_EQUAL(batch.records(), 4u);
  CHECK_EQUAL(batch.bytes, 165u);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(batch.rows[i].seq, i);
  CHECK_EQUAL(std::to_integer<int>(batch.rows[3].data[99]), 3);
  CHECK_EQUAL(batch.rows[2].site, "site");
  ring->release();
  CHECK(ring->empty());
}

TEST(a_batch_keeps_to_the_byte_limit_but_takes_one_record_whatever_its_size) {
  auto ring = make(Policy::kBlock, 1 << 16);
  push(*ring, 512);
  push(*ring, 512);
  push(*ring, 512);
  push(*ring, 8192);
  CHECK_EQUAL(drain(*ring), 2u);
  CHECK_EQUAL(drain(*ring), 1u);
  CHECK_EQUAL(drain(*ring), 1u);
  CHECK_EQUAL(drain(*ring), 0u);
}

TEST(room_is_never_given_out_twice) {
  auto ring = make(Policy::kDropNewest, 4096, 1000);
  std::uint64_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    push(*ring, static_cast<std::size_t>((state >> 33) % 1500));
    CHECK(ring->snapshot().peak_bytes <= 4096);
    if (round % 3 == 0) drain(*ring);
    balanced(*ring);
  }
}

TEST(a_record_as_large_as_the_ring_fits_whenever_it_is_empty) {
  auto ring = make(Policy::kDropNewest);
  CHECK(push(*ring, 100) == Admission::kIn);
  drain(*ring);
  CHECK(push(*ring, 4096) == Admission::kIn);
  CHECK(push(*ring, 0) == Admission::kIn);
  CHECK(push(*ring, 1) == Admission::kDropped);
  CHECK(push(*ring, 4097) == Admission::kDropped);
  CHECK_EQUAL(ring->snapshot().dropped[static_cast<std::size_t>(Drop::kOversize)], 1u);
  balanced(*ring);
}

TEST(would_wait_counts_nothing) {
  auto ring = make(Policy::kBlock);
  CHECK(push(*ring, 4096, false) == Admission::kIn);
  CHECK(push(*ring, 1, false) == Admission::kWouldWait);
  CHECK_EQUAL(ring->snapshot().accepted, 1u);
  CHECK(push(*ring, 1, true) == Admission::kDropped);
  CHECK_EQUAL(ring->snapshot().dropped[static_cast<std::size_t>(Drop::kDeadline)], 1u);
}

TEST(drop_oldest_does_not_take_what_is_being_sent) {
  auto ring = make(Policy::kDropOldest);
  for (int i = 0; i < 4; ++i) push(*ring, 1024);
  Batch batch;
  ring->take(batch);
  CHECK_EQUAL(batch.records(), 1u);
  CHECK(push(*ring, 1024, false) == Admission::kWouldWait);
  ring->release();
  CHECK(push(*ring, 1024, false) == Admission::kIn);
  CHECK(push(*ring, 1024, false) == Admission::kIn);
  CHECK_EQUAL(ring->snapshot().dropped[static_cast<std::size_t>(Drop::kOldest)], 1u);
}

TEST(a_closed_ring_takes_nothing_and_lets_waiting_producers_go) {
  auto ring = make(Policy::kBlock);
  push(*ring, 4096);
  std::thread waiting([&] { CHECK(push(*ring, 64) == Admission::kDropped); });
  ring->close();
  waiting.join();
  CHECK(push(*ring, 1) == Admission::kDropped);
  balanced(*ring);
}

TEST(a_written_off_ledger_stays_as_it_is) {
  auto ring = make(Policy::kBlock);
  push(*ring, 10);
  ring->write_off(Fail::kClosed);
  ring->account([](Ledger& ledger) { ledger.write(1, 10); });
  CHECK_EQUAL(ring->snapshot().failed[static_cast<std::size_t>(Fail::kClosed)], 1u);
  CHECK_EQUAL(ring->snapshot().written, 0u);
  balanced(*ring);
}

TEST(producers_and_the_drain_share_it_for_a_while) {
  for (const Policy policy : {Policy::kBlock, Policy::kDropNewest, Policy::kDropOldest, Policy::kSample}) {
    auto ring = make(policy, 1 << 14, 128);
    std::atomic<int> busy{4};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < 2000; ++i) push(*ring, (i * 37 + t * 101) % 3000);
        --busy;
      });
    }
    while (busy > 0 || !ring->empty()) {
      ring->wait(0.001);
      drain(*ring);
      balanced(*ring);
    }
    for (std::thread& thread : threads) thread.join();
    while (drain(*ring) > 0) {
    }
    const Ledger ledger = ring->snapshot();
    CHECK_EQUAL(ledger.accepted, 8000u);
    CHECK_EQUAL(ledger.pending, 0u);
    balanced(*ring);
  }
}

TEST(a_broken_copy_is_counted_and_the_rest_goes_on) {
  class Breaking final : public Payload {
   public:
    std::uint64_t capacity() const noexcept override { return 4096; }
    std::uint64_t write(std::uint64_t, const Slice&, std::uintptr_t) override {
      if (++writes == 2) throw std::runtime_error("the device is gone");
      return static_cast<std::uint64_t>(writes);
    }
    bool ready(std::uint64_t ticket) override {
      if (ticket == 3) throw std::runtime_error("the copy failed");
      return true;
    }
    void fetch(std::span<const Region> regions, std::span<const std::byte*> out) override {
      for (std::size_t i = 0; i < regions.size(); ++i) out[i] = memory.data() + regions[i].offset;
    }
    std::uint64_t fetch_limit() const noexcept override { return 4096; }
    std::array<std::byte, 4096> memory{};
    int writes = 0;
  };
  for (const Policy policy : {Policy::kBlock, Policy::kDropOldest}) {
    RingLimits limits;
    limits.policy = policy;
    Ring ring(limits, std::make_unique<Breaking>());
    ring.declare("site", 0, 0, "uint8");
    ring.request("request");
    CHECK(push(ring, 1024) == Admission::kIn);
    CHECK(push(ring, 1024) == Admission::kDropped);
    CHECK(push(ring, 1024) == Admission::kIn);
    CHECK(push(ring, 1024) == Admission::kIn);
    if (policy == Policy::kDropOldest) {
      for (int i = 0; i < 4; ++i) CHECK(push(ring, 1024) == Admission::kIn);
    }
    for (int i = 0; i < 10; ++i) drain(ring);
    const Ledger ledger = ring.snapshot();
    CHECK_EQUAL(ledger.dropped[static_cast<std::size_t>(Drop::kDevice)], 2u);
    CHECK_EQUAL(ledger.pending, 0u);
    balanced(ring);
    CHECK(!ring.last_error().empty());
  }
}

TEST_MAIN
