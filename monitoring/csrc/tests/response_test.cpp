#include "clickhouse/response.h"

#include <string>

#include "check.h"

using lockgate::clickhouse::Response;

static Response read(const std::string& text, std::size_t piece = std::string::npos, bool eof = false) {
  Response response;
  for (std::size_t at = 0; at < text.size() && !response.done() && !response.failed();) {
    const std::size_t part = std::min(piece, text.size() - at);
    at += response.feed(text.data() + at, part);
  }
  if (eof) response.end_of_stream();
  return response;
}

TEST(a_response_with_a_length) {
  const std::string text =
      "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\nX-ClickHouse-Exception-Code: 60\r\n\r\nhello";
  for (const std::size_t piece : {1u, 2u, 7u, 1000u}) {
    const Response response = read(text, piece);
    CHECK(response.done());
    CHECK_EQUAL(response.status(), 500);
    CHECK_EQUAL(response.exception_code(), 60);
    CHECK_EQUAL(response.body(), "hello");
    CHECK(response.keep_alive());
  }
}

TEST(a_chunked_response_with_extensions_and_trailers) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n";
  for (const std::size_t piece : {1u, 3u, 1000u}) {
    const Response response = read(text, piece);
    CHECK(response.done());
    CHECK_EQUAL(response.body(), "abc0123456789");
    CHECK(response.keep_alive());
  }
}

TEST(bytes_after_the_response_are_not_taken) {
  const std::string text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500";
  Response response;
  CHECK_EQUAL(response.feed(text.data(), text.size()), text.size() - 12);
  CHECK(response.done());
}

TEST(a_body_until_the_connection_closes) {
  const Response response = read("HTTP/1.0 200 OK\r\n\r\nall of it", 4, true);
  CHECK(response.done());
  CHECK_EQUAL(response.body(), "all of it");
  CHECK(!response.keep_alive());
}

TEST(connection_headers_decide_about_keeping) {
  CHECK(!read("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").keep_alive());
  CHECK(!read("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").keep_alive());
  CHECK(read("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: foo, Keep-Alive\r\n\r\n").keep_alive());
}

TEST(interim_responses_are_skipped) {
  const Response response = read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
  CHECK(response.done());
  CHECK_EQUAL(response.status(), 204);
}

TEST(lines_may_end_without_a_carriage_return) {
  CHECK_EQUAL(read("HTTP/1.1 200 OK\nContent-Length: 1\n\nx").body(), "x");
}

TEST(nonsense_fails_with_a_reason) {
  const std::pair<const char*, const char*> table[] = {
      {"SSH-2.0-OpenSSH\r\n", "another protocol"},
      {"HTTP/2 200 OK\r\n", "not an HTTP/1.1"},
      {"HTTP/1.1 2x0 OK\r\n", "not an HTTP/1.1"},
      {"HTTP/1.1 200 OK\r\nno colon\r\n", "no name"},
      {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n", "not a number"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n", "not a number"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n", "two different"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n", "not chunked"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "size of a chunk"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "longer than it says"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", "size of a chunk"},
      {"HTTP/1.1 101 Switching\r\n\r\n", "another protocol"},
  };
  for (const auto& [text, reason] : table) {
    const Response response = read(text, 3);
    CHECK(response.failed());
    if (response.problem().find(reason) == std::string::npos)
      check::fail(__FILE__, __LINE__, text + response.problem());
  }
}

TEST(an_early_end_fails) {
  CHECK_EQUAL(read("", 1, true).problem(), "the connection was closed without an answer");
  CHECK_EQUAL(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 1, true).problem(),
              "the connection was closed in the middle of the answer");
}

TEST(memory_is_bounded_whatever_comes) {
  Response endless;
  const std::string part(4096, 'x');
  std::size_t fed = 0;
  while (!endless.failed() && fed < (1u << 20)) fed += endless.feed(part.data(), part.size());
  CHECK(endless.failed());
  CHECK(fed <= Response::kMostHeader + part.size());

  Response large;
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n";
  large.feed(head.data(), head.size());
  for (std::size_t sent = 0; sent < 10000000;)
    sent += large.feed(part.data(), std::min<std::size_t>(part.size(), 10000000 - sent));
  CHECK(large.done());
  CHECK_EQUAL(large.body().size(), Response::kMostBody);
}

TEST(many_chunks_are_no_header) {
  std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20000; ++i) text += "1\r\nx\r\n";
  text += "0\r\n\r\n";
  CHECK(read(text, 1000).done());
}

TEST_MAIN
