// Feeds arbitrary bytes, in arbitrary pieces, to the HTTP response reader.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "clickhouse/client.h"
#include "clickhouse/response.h"

using lockgate::clickhouse::Response;

static void require(bool holds) {
  if (!holds) std::abort();
}

// The first byte chooses the size of the pieces; the result must not depend on it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = 1 + data[0];
  const char* text = reinterpret_cast<const char*>(data + 1);
  const std::size_t length = size - 1;

  Response whole;
  const std::size_t used = whole.feed(text, length);
  require(used <= length);
  require(used == length || whole.done() || whole.failed());

  Response pieces;
  std::size_t at = 0;
  while (at < length && !pieces.done() && !pieces.failed()) at += pieces.feed(text + at, std::min(piece, length - at));
  require(pieces.done() == whole.done());
  require(pieces.failed() == whole.failed());
  require(pieces.body() == whole.body());
  require(pieces.status() == whole.status());
  require(pieces.keep_alive() == whole.keep_alive());
  require(whole.body().size() <= Response::kMostBody);

  whole.end_of_stream();
  require(whole.done() != whole.failed());
  require(whole.failed() == !whole.problem().empty());
  static_cast<void>(lockgate::clickhouse::code_in_body(whole.body()));
  return 0;
}
