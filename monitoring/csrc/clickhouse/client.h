// Inserts blocks into a ClickHouse server over HTTP.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "clickhouse/block.h"
#include "clickhouse/connection.h"
#include "common/interrupt.h"

namespace lockgate::clickhouse {

struct ClientSettings {
  std::string host;
  std::uint16_t port = 8123;
  std::string path = "/";
  std::string database;
  std::string table;
  std::string user = "default";
  std::string password;
  double timeout = 30.0;  // seconds, for connecting and for each request
  std::vector<std::pair<std::string, std::string>> settings;
  bool deduplicate = false;
};

enum class Answer {
  kDone,
  kAgain,  // the server is away, busy or short of something
  kNever,  // the server refuses this block, whenever it comes
};

struct InsertResult {
  Answer answer = Answer::kDone;
  std::string message;  // without credentials
};

// What a ClickHouse answer means. `code` 0: the server named none. Pure.
Answer judge(int status, int code) noexcept;
// The code in "Code: 60, e.displayText() = ..." at the start of a body; 0 if there is none. Pure.
int code_in_body(std::string_view body) noexcept;

// Keeps one connection alive over many inserts. Not thread-safe. Throws
// std::bad_alloc alone, the constructor std::invalid_argument for settings
// that do not fit into a request.
class Client {
 public:
  explicit Client(ClientSettings settings);

  // Send one block. A kept connection that turns out to be closed is opened again once.
  InsertResult insert(const Block& block, Interrupt& interrupt);
  void disconnect() noexcept { connection_.close(); }

  // `http://host:port/database.table`
  const std::string& target() const noexcept { return target_; }
  std::uint64_t reconnects() const noexcept { return connects_ > 0 ? connects_ - 1 : 0; }

 private:
  std::string head(const Block& block) const;

  ClientSettings settings_;
  std::string target_;
  std::string request_;  // the part of the head that never changes
  std::string headers_;
  Connection connection_;
  std::uint64_t connects_ = 0;
};

}  // namespace lockgate::clickhouse
