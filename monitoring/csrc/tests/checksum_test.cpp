#include "common/checksum.h"

#include <string>

#include "check.h"

using lockgate::Checksum;

static std::uint64_t whole(const std::string& text) {
  Checksum sum;
  sum.add(text.data(), text.size());
  return sum.value();
}

TEST(pieces_give_the_same_as_the_whole) {
  const std::string text = "the quick brown fox jumps over the lazy dog, twice over";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Checksum sum;
    sum.add(text.data(), cut);
    sum.add(text.data() + cut, text.size() - cut);
    CHECK_EQUAL(sum.value(), whole(text));
  }
}

TEST(every_flipped_bit_and_every_lost_byte_shows) {
  const std::string text(67, 'a');
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      CHECK(whole(damaged) != whole(text));
    }
    CHECK(whole(text.substr(0, at)) != whole(text));
  }
}

TEST(trailing_zeros_show) {
  CHECK(whole(std::string(3, '\0')) != whole(std::string(4, '\0')));
  CHECK(whole("") != whole(std::string(1, '\0')));
}

TEST_MAIN
