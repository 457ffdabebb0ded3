#include "ring/plan.h"

#include <numeric>
#include <vector>

#include "check.h"

using namespace lockgate;

static Extents extents(std::initializer_list<std::uint32_t> values) {
  Extents out;
  for (const std::uint32_t value : values) out.of[out.dims++] = value;
  return out;
}

static std::vector<Piece> pieces_of(const Plan& plan, const Extents& shape, std::uint32_t token_dim,
                                    std::uint32_t column, const std::byte* data, std::uint64_t nbytes) {
  std::vector<Piece> out;
  cut(plan, shape, token_dim, column, data, nbytes, out);
  return out;
}

TEST(rows_are_cut_along_the_column_axis) {
  // [b=2, heads=2, q=3, kv=2] of one byte each.
  std::vector<std::byte> data(24);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  const Plan plan{5, {{7, 1, 1, 3, 10}}};
  const auto pieces = pieces_of(plan, extents({2, 2, 3, 2}), 2, 0, data.data(), data.size());
  CHECK_EQUAL(pieces.size(), 1u);
  CHECK_EQUAL(pieces[0].token_start, 10u);
  CHECK_EQUAL(pieces[0].token_end, 12u);
  CHECK_EQUAL(pieces[0].shape.dims, 3u);
  CHECK_EQUAL(pieces[0].shape.of[1], 2u);
  std::vector<std::byte> out(pieces[0].slice.bytes());
  copy_slice(pieces[0].slice, out.data());
  const std::vector<std::byte> expected{std::byte{14}, std::byte{15}, std::byte{16}, std::byte{17},
                                        std::byte{20}, std::byte{21}, std::byte{22}, std::byte{23}};
  CHECK(out == expected);
}

TEST(a_column_offset_leaves_earlier_tokens_out) {
  const std::vector<std::byte> data(4);
  const Plan plan{0, {{0, 0, 2, 8, 100}, {0, 0, 0, 4, 0}}};
  const auto pieces = pieces_of(plan, extents({1, 4}), 1, 4, data.data(), 4);
  CHECK_EQUAL(pieces.size(), 1u);
  CHECK_EQUAL(pieces[0].token_start, 102u);
  CHECK_EQUAL(pieces[0].token_end, 106u);
}

TEST(an_empty_tensor_has_no_records) {
  const Plan plan{0, {{0, 0, 0, 0, 0}}};
  CHECK(pieces_of(plan, extents({1, 0, 4}), 1, 0, nullptr, 0).empty());
}

TEST(what_does_not_fit_is_refused) {
  const std::vector<std::byte> data(8);
  CHECK_THROWS(pieces_of(Plan{0, {{0, 2, 0, 1, 0}}}, extents({2, 4}), 1, 0, data.data(), 8), "the tensor has 2");
  CHECK_THROWS(pieces_of(Plan{0, {{0, 0, 0, 5, 0}}}, extents({2, 4}), 1, 0, data.data(), 8), "ends at column 4");
  CHECK_THROWS(pieces_of(Plan{0, {}}, extents({8}), 1, 0, data.data(), 8), "token_dim");
  CHECK_THROWS(pieces_of(Plan{0, {}}, extents({2, 4}), 0, 0, data.data(), 8), "token_dim");
  Plans plans;
  CHECK_THROWS(plans.add(Plan{0, {{0, 0, 2, 1, 0}}}), "before they begin");
  CHECK_THROWS(plans.add(Plan{0, {{0, 0, 0, 2, 0xffffffff}}}), "too far out");
}

TEST(the_newest_plans_are_kept) {
  Plans plans;
  CHECK_THROWS(plans.find(0), "not kept");
  for (std::uint64_t step = 0; step < 100; ++step) CHECK_EQUAL(plans.add(Plan{step, {}}), step);
  CHECK_EQUAL(plans.find(99)->step, 99u);
  CHECK_EQUAL(plans.find(36)->step, 36u);
  CHECK_THROWS(plans.find(35), "not kept");
  CHECK_THROWS(plans.find(100), "not kept");
}

TEST(products_saturate) {
  CHECK_EQUAL(extents({0xffffffff, 0xffffffff, 0xffffffff}).elements(), ~std::uint64_t{0});
  CHECK_EQUAL(extents({}).elements(), 1u);
  CHECK_EQUAL(extents({5, 0}).elements(), 0u);
}

TEST_MAIN
