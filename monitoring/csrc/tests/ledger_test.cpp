#include "ring/ledger.h"

#include "check.h"

using namespace lockgate;

static void balanced(const Ledger& ledger) {
  CHECK_EQUAL(ledger.accepted, ledger.written + ledger.dropped_total() + ledger.failed_total() + ledger.pending);
}

TEST(every_step_keeps_the_equation) {
  Ledger ledger;
  CHECK_EQUAL(ledger.accept(10), 0u);
  CHECK_EQUAL(ledger.accept(20), 1u);
  ledger.refuse(Drop::kNewest, 5);
  CHECK_EQUAL(ledger.accept(30), 3u);
  ledger.fail_outside(Fail::kHook, 2);
  balanced(ledger);
  ledger.write(1, 10);
  ledger.spool(1);
  balanced(ledger);
  ledger.drop(Drop::kOldest, 1, 20);
  ledger.unspool(1);
  ledger.fail(Fail::kRetry, 1, 30);
  balanced(ledger);
  CHECK_EQUAL(ledger.pending, 0u);
  CHECK_EQUAL(ledger.bytes_pending, 0u);
  CHECK_EQUAL(ledger.accepted, 6u);
}

TEST_MAIN
