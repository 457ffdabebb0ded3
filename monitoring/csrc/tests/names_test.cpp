#include "ring/names.h"

#include "check.h"
#include "ring/dtype.h"

using namespace lockgate;

TEST(the_same_meaning_has_the_same_number) {
  Names names;
  CHECK_EQUAL(names.declare("q", 0, 0, "float32"), 0u);
  CHECK_EQUAL(names.declare("q", 0, 0, "bfloat16"), 1u);
  CHECK_EQUAL(names.declare("q", 0, 0, "float32"), 0u);
  CHECK_EQUAL(names.slot(1).item_bytes, 2u);
  CHECK_THROWS(names.slot(2), "never declared (there are 2)");
  CHECK_THROWS(names.declare("q", 0, 0, "float"), "dtype is 'float'");
  CHECK_THROWS(names.declare("", 0, 0, "float32"), "needs a name");
}

TEST(a_forgotten_number_comes_back_when_its_records_are_gone) {
  Names names;
  const auto a = names.request("a");
  names.hold(names.find_request(a));
  names.forget(a);
  CHECK_THROWS(names.find_request(a), "forgotten");
  CHECK_EQUAL(names.request("b"), 1u);
  names.let_go(a);
  CHECK_EQUAL(names.request("c"), a);
  CHECK_EQUAL(names.find_request(a).id, "c");
}

TEST(asking_for_a_forgotten_request_again_takes_it_back) {
  Names names;
  const auto a = names.request("a");
  names.hold(names.find_request(a));
  names.forget(a);
  CHECK_EQUAL(names.request("a"), a);
  names.let_go(a);
  CHECK_EQUAL(names.find_request(a).id, "a");
}

TEST_MAIN
