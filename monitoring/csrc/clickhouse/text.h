// Small pieces of text for requests and messages.
#pragma once

#include <string>
#include <string_view>

namespace lockgate::clickhouse {

// For a URL's query part: everything but letters, digits and -_.~ becomes %XX.
std::string percent_encode(std::string_view text);

// An identifier in backticks, with backticks and backslashes escaped.
std::string quote_identifier(std::string_view name);

// The first `limit` bytes of a server's answer on one line: stack traces and
// control characters gone, and `secret` (if it has three bytes or more) replaced.
std::string tidy_message(std::string_view text, std::string_view secret, std::size_t limit = 400);

}  // namespace lockgate::clickhouse
