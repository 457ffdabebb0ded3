#include "ring/space.h"

#include <deque>

#include "check.h"

using lockgate::Space;

TEST(regions_never_overlap_and_never_wrap) {
  Space space(4096);
  struct Region {
    std::uint64_t offset, size, charge;
  };
  std::deque<Region> held;
  std::uint64_t state = 7;
  for (int round = 0; round < 20000; ++round) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t size = (state >> 40) % 33 * 64;
    if (space.fits(size)) {
      const Space::Taken taken = space.take(size);
      CHECK(taken.offset + size <= 4096);
      for (const Region& other : held) {
        CHECK(taken.offset + size <= other.offset || other.offset + other.size <= taken.offset || size == 0 ||
              other.size == 0);
      }
      held.push_back({taken.offset, size, taken.charge});
    } else {
      CHECK(!held.empty());
      space.give_back(held.front().charge);
      held.pop_front();
    }
    CHECK(space.used() <= 4096);
  }
}

TEST(an_empty_space_holds_whatever_its_capacity_holds) {
  Space space(4096);
  space.give_back(space.take(64).charge);
  CHECK(space.fits(4096));
  CHECK_EQUAL(space.take(4096).offset, 0u);
  CHECK(!space.fits(64));
  CHECK(space.fits(0));
}

TEST(what_is_skipped_at_the_end_is_charged) {
  Space space(1024);
  const auto first = space.take(512);
  space.take(256);
  space.give_back(first.charge);
  CHECK(space.fits(512));
  const auto wrapped = space.take(512);
  CHECK_EQUAL(wrapped.offset, 0u);
  CHECK_EQUAL(wrapped.charge, 768u);
  CHECK(!space.fits(64));
}

TEST_MAIN
