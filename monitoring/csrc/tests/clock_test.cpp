#include "common/clock.h"

#include <limits>

#include "check.h"
#include "common/interrupt.h"

using lockgate::Deadline;
using lockgate::Interrupt;

TEST(limits_of_any_size_are_usable) {
  CHECK(Deadline::after(0).passed());
  CHECK(Deadline::after(-5).passed());
  CHECK(!Deadline::after(1e30).passed());
  CHECK(!Deadline::after(std::numeric_limits<double>::infinity()).passed());
  CHECK(!Deadline::after(std::numeric_limits<double>::quiet_NaN()).passed());
  CHECK_EQUAL(Deadline::after(-1).milliseconds(), 0);
  CHECK_EQUAL(Deadline::after(1e9).milliseconds(100), 100);
}

TEST(milliseconds_are_rounded_up_so_that_poll_does_not_spin) { CHECK_EQUAL(Deadline::after(0.0002).milliseconds(), 1); }

TEST(an_interrupt_shortens_waits_and_never_lengthens_them) {
  Interrupt interrupt;
  CHECK(!interrupt.stopping());
  interrupt.stop_by(Deadline::after(0.0));
  interrupt.stop_by(Deadline::after(100.0));
  CHECK(interrupt.stopping());
  CHECK(interrupt.limit(Deadline::after(50.0)).passed());
  CHECK(interrupt.limit(Deadline::after(-1)).passed());
}

TEST_MAIN
