// Reads one HTTP/1.1 response from whatever pieces the network gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockgate::clickhouse {

// Feed bytes until `done` or `failed`. Bounded whatever the peer sends: the
// header may have 64 KiB, and of the body the first 64 KiB are kept, the rest
// is read and forgotten. Interim (1xx) responses are skipped. Throws
// std::bad_alloc alone.
class Response {
 public:
  static constexpr std::size_t kMostHeader = 64 * 1024;
  static constexpr std::size_t kMostBody = 64 * 1024;

  // How many bytes belonged to this response; less than `size` only once it is done or failed.
  std::size_t feed(const char* data, std::size_t size);
  // The peer closed the connection.
  void end_of_stream();

  bool done() const noexcept { return state_ == State::kDone; }
  bool failed() const noexcept { return state_ == State::kFailed; }
  const std::string& problem() const noexcept { return problem_; }
  bool started() const noexcept { return started_; }

  int status() const noexcept { return status_; }
  // X-ClickHouse-Exception-Code; 0 without one.
  int exception_code() const noexcept { return exception_code_; }
  const std::string& body() const noexcept { return body_; }
  // Whether the peer keeps the connection for another request.
  bool keep_alive() const noexcept { return keep_alive_ && done(); }

 private:
  enum class State {
    kStatus,
    kHeaders,
    kLength,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kTrailers,
    kUntilClose,
    kDone,
    kFailed
  };

  void line(std::string_view text);
  void status_line(std::string_view text);
  void header(std::string_view text);
  void headers_end();
  void chunk_size(std::string_view text);
  void keep(const char* data, std::size_t size);
  void fail(std::string problem);

  State state_ = State::kStatus;
  bool started_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool has_length_ = false;
  int status_ = 0;
  int exception_code_ = 0;
  std::uint64_t left_ = 0;  // of the body or the chunk
  std::size_t header_bytes_ = 0;
  std::string line_;
  std::string body_;
  std::string problem_;
};

}  // namespace lockgate::clickhouse
