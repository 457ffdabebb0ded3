#include "clickhouse/text.h"

#include <algorithm>

namespace lockgate::clickhouse {

std::string percent_encode(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size() * 3 / 2);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return out;
}

std::string quote_identifier(std::string_view name) {
  std::string out = "`";
  for (const char c : name) {
    if (c == '`' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  out.push_back('`');
  return out;
}

std::string tidy_message(std::string_view text, std::string_view secret, std::size_t limit) {
  text = text.substr(0, text.find("Stack trace:"));
  std::string out;
  for (const char c : text) {
    const bool space = static_cast<unsigned char>(c) <= ' ' || c == 127;
    if (!space) {
      out.push_back(c);
    } else if (!out.empty() && out.back() != ' ') {
      out.push_back(' ');
    }
  }
  if (secret.size() >= 3) {
    for (std::size_t at = out.find(secret); at != std::string::npos; at = out.find(secret, at + 3)) {
      out.replace(at, secret.size(), "***");
    }
  }
  if (out.size() > limit) out = out.substr(0, limit) + "...";
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace lockgate::clickhouse
