#include "clickhouse/client.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <string_view>

#include "clickhouse/row.h"
#include "clickhouse/text.h"

namespace lockgate::clickhouse {

namespace {

// ClickHouse's numbers for what no second attempt can change: the query, the
// table, the settings, the data or the account is wrong.
constexpr std::array kNeverCodes{
    6,  9,  10, 16, 20,  26,  27,  33,  36,  38,  41,  43,  44,  46,  47,  50,  53,  60,  62,
    69, 70, 80, 81, 115, 117, 131, 164, 192, 193, 194, 195, 291, 321, 349, 469, 497, 516,
};

void require_plain(std::string_view value, const char* name) {
  const bool control =
      std::any_of(value.begin(), value.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; });
  // The value itself stays out of the message: it may be the password.
  if (control) throw std::invalid_argument(std::string(name) + " holds a control character");
}

std::string insert_query(const ClientSettings& settings) {
  std::string query = "INSERT INTO ";
  if (!settings.database.empty()) query += quote_identifier(settings.database) + ".";
  query += quote_identifier(settings.table) + " (";
  for (std::size_t i = 0; i < kColumns.size(); ++i) query.append(i == 0 ? "" : ", ").append(kColumns[i].first);
  return query + ") FORMAT Native";
}

}  // namespace

Answer judge(int status, int code) noexcept {
  if (code > 0) {
    return std::find(kNeverCodes.begin(), kNeverCodes.end(), code) != kNeverCodes.end() ? Answer::kNever
                                                                                        : Answer::kAgain;
  }
  if (status == 200 && code == 0) return Answer::kDone;
  // Too early, too slow, too many: worth another attempt. Other 4xx say that the request is wrong.
  if (status == 408 || status == 425 || status == 429 || status >= 500) return Answer::kAgain;
  return status >= 300 && status < 500 ? Answer::kNever : Answer::kAgain;
}

int code_in_body(std::string_view body) noexcept {
  constexpr std::string_view kStart = "Code: ";
  if (body.substr(0, kStart.size()) != kStart) return 0;
  int code = 0;
  std::from_chars(body.data() + kStart.size(), body.data() + body.size(), code);
  return code;
}

Client::Client(ClientSettings settings) : settings_(std::move(settings)) {
  if (settings_.host.empty()) throw std::invalid_argument("host is '', expected a name or an address");
  if (settings_.port == 0) throw std::invalid_argument("port is 0, expected 1 to 65535");
  if (settings_.table.empty()) throw std::invalid_argument("table is '', expected a name");
  if (!(settings_.timeout > 0)) throw std::invalid_argument("timeout is not more than 0 s");
  require_plain(settings_.host, "host");
  require_plain(settings_.path, "path");
  require_plain(settings_.user, "user");
  require_plain(settings_.password, "password");
  if (settings_.path.empty() || settings_.path.front() != '/' ||
      settings_.path.find_first_of(" ?#") != std::string::npos) {
    throw std::invalid_argument("path is '" + settings_.path +
                                "', expected one that begins with / and has no ?, # or space");
  }
  const bool bare_ipv6 = settings_.host.find(':') != std::string::npos;
  const std::string authority =
      (bare_ipv6 ? "[" + settings_.host + "]" : settings_.host) + ":" + std::to_string(settings_.port);
  target_ =
      "http://" + authority + "/" + (settings_.database.empty() ? "" : settings_.database + ".") + settings_.table;
  request_ = "POST " + settings_.path + "?query=" + percent_encode(insert_query(settings_));
  for (const auto& [name, value] : settings_.settings)
    request_ += "&" + percent_encode(name) + "=" + percent_encode(value);
  headers_ = " HTTP/1.1\r\nHost: " + authority + "\r\nUser-Agent: lockgate\r\nX-ClickHouse-User: " + settings_.user;
  if (!settings_.password.empty()) headers_ += "\r\nX-ClickHouse-Key: " + settings_.password;
  headers_ += "\r\nConnection: keep-alive\r\nContent-Type: application/octet-stream\r\nContent-Length: ";
}

std::string Client::head(const Block& block) const {
  std::string out = request_;
  if (settings_.deduplicate) out += "&insert_deduplication_token=" + percent_encode(block.token);
  return out + headers_ + std::to_string(block.size()) + "\r\n\r\n";
}

InsertResult Client::insert(const Block& block, Interrupt& interrupt) {
  const Deadline limit = Deadline::after(settings_.timeout);
  const std::string request = head(block);
  for (bool fresh = false;;) {
    if (connection_.open() && connection_.stale()) connection_.close();
    if (!connection_.open()) {
      fresh = true;
      if (std::string problem = connection_.connect(settings_.host, settings_.port, limit, interrupt);
          !problem.empty()) {
        return {Answer::kAgain, std::move(problem)};
      }
      ++connects_;
    }
    Response response;
    std::string problem = connection_.exchange(request, block.segments(), response, limit, interrupt);
    if (!problem.empty()) {
      // The peer may close a kept connection in the very moment we use it. It
      // has not answered, so the same block goes out again on a new one.
      if (!fresh && !response.started() && !interrupt.limit(limit).passed()) continue;
      return {Answer::kAgain, tidy_message(problem, settings_.password)};
    }
    const int in_body = code_in_body(response.body());
    const int code = response.exception_code() != 0 ? response.exception_code() : in_body;
    const Answer answer = judge(response.status(), code);
    if (answer == Answer::kDone) return {};
    // After a refusal the server may not have read the whole body.
    connection_.close();
    return {answer,
            "status " + std::to_string(response.status()) + ": " + tidy_message(response.body(), settings_.password)};
  }
}

}  // namespace lockgate::clickhouse
