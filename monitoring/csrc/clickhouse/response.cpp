#include "clickhouse/response.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace lockgate::clickhouse {

namespace {

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_word(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The whole text must be a number.
template <typename T>
bool parse_number(std::string_view text, T& out, int base = 10) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Whether a comma list names the word.
bool lists(std::string_view list, std::string_view word) noexcept {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (same_word(trim(list.substr(0, comma)), word)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

std::size_t Response::feed(const char* data, std::size_t size) {
  std::size_t used = 0;
  started_ = started_ || size > 0;
  while (used < size && state_ != State::kDone && state_ != State::kFailed) {
    const char* at = data + used;
    const std::size_t rest = size - used;
    switch (state_) {
      case State::kLength:
      case State::kChunk: {
        const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(left_, rest));
        keep(at, part);
        used += part;
        left_ -= part;
        if (left_ == 0) state_ = state_ == State::kLength ? State::kDone : State::kChunkEnd;
        break;
      }
      case State::kUntilClose:
        keep(at, rest);
        used = size;
        break;
      default: {
        const void* newline = std::memchr(at, '\n', rest);
        const std::size_t part =
            newline == nullptr ? rest : static_cast<std::size_t>(static_cast<const char*>(newline) - at) + 1;
        used += part;
        header_bytes_ += part;
        if (header_bytes_ > kMostHeader) {
          fail("its header is longer than 65536 bytes");
          break;
        }
        line_.append(at, part);
        if (newline == nullptr) break;
        std::string whole = std::exchange(line_, {});
        whole.pop_back();
        if (!whole.empty() && whole.back() == '\r') whole.pop_back();
        line(whole);
      }
    }
  }
  return used;
}

void Response::end_of_stream() {
  if (state_ == State::kUntilClose) {
    state_ = State::kDone;
  } else if (state_ != State::kDone && state_ != State::kFailed) {
    fail(started_ ? "the connection was closed in the middle of the answer"
                  : "the connection was closed without an answer");
  }
}

void Response::line(std::string_view text) {
  switch (state_) {
    case State::kStatus:
      return status_line(text);
    case State::kHeaders:
      return text.empty() ? headers_end() : header(text);
    case State::kChunkSize:
      return chunk_size(text);
    case State::kChunkEnd:
      if (!text.empty()) return fail("a chunk is longer than it says");
      // Chunk lines are framing: their number is bounded by the body, not by the header's limit.
      header_bytes_ = 0;
      state_ = State::kChunkSize;
      return;
    case State::kTrailers:
      if (text.empty()) state_ = State::kDone;
      return;
    default:
      return;
  }
}

void Response::status_line(std::string_view text) {
  // HTTP/1.x NNN reason
  const bool shaped = text.size() >= 12 && text.substr(0, 7) == "HTTP/1." && (text[7] == '0' || text[7] == '1') &&
                      text[8] == ' ' && (text.size() == 12 || text[12] == ' ');
  if (!shaped || !parse_number(text.substr(9, 3), status_) || status_ < 100) {
    return fail("it is not an HTTP/1.1 response (is this the port of another protocol?)");
  }
  keep_alive_ = text[7] == '1';
  state_ = State::kHeaders;
}

void Response::header(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return fail("a header line has no name");
  const std::string_view name = text.substr(0, colon);
  const std::string_view value = trim(text.substr(colon + 1));
  if (same_word(name, "content-length")) {
    std::uint64_t length = 0;
    if (!parse_number(value, length)) return fail("its Content-Length is not a number");
    if (has_length_ && length != left_) return fail("it has two different Content-Lengths");
    has_length_ = true;
    left_ = length;
  } else if (same_word(name, "transfer-encoding")) {
    if (!same_word(value, "chunked")) return fail("its Transfer-Encoding is not chunked");
    chunked_ = true;
  } else if (same_word(name, "connection")) {
    if (lists(value, "close")) keep_alive_ = false;
    if (lists(value, "keep-alive")) keep_alive_ = true;
  } else if (same_word(name, "x-clickhouse-exception-code")) {
    if (!parse_number(value, exception_code_)) exception_code_ = -1;
  }
}

void Response::headers_end() {
  if (status_ < 200) {
    if (status_ == 101) return fail("it switches to another protocol");
    state_ = State::kStatus;
    return;
  }
  if (status_ == 204 || status_ == 304) {
    state_ = State::kDone;
  } else if (chunked_) {
    header_bytes_ = 0;
    left_ = 0;
    state_ = State::kChunkSize;
  } else if (has_length_) {
    state_ = left_ == 0 ? State::kDone : State::kLength;
  } else {
    keep_alive_ = false;
    state_ = State::kUntilClose;
  }
}

void Response::chunk_size(std::string_view text) {
  const std::string_view digits = trim(text.substr(0, text.find(';')));
  if (digits.size() > 15 || !parse_number(digits, left_, 16)) return fail("the size of a chunk is not a number");
  state_ = left_ == 0 ? State::kTrailers : State::kChunk;
}

void Response::keep(const char* data, std::size_t size) {
  body_.append(data, std::min(size, kMostBody - body_.size()));
}

void Response::fail(std::string problem) {
  problem_ = std::move(problem);
  keep_alive_ = false;
  state_ = State::kFailed;
}

}  // namespace lockgate::clickhouse
