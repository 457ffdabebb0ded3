// One TCP connection with time limits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "clickhouse/block.h"
#include "clickhouse/response.h"
#include "common/clock.h"
#include "common/interrupt.h"
#include "common/unique_fd.h"

namespace lockgate::clickhouse {

// Non-blocking socket with one request at a time. Every wait ends by the limit
// or by the interrupt's. Not thread-safe; problems come back as text.
class Connection {
 public:
  bool open() const noexcept { return static_cast<bool>(socket_); }
  // Whether the peer has closed an idle connection, or sent what nobody asked for.
  bool stale() const noexcept;

  // "" or what went wrong. Tries each address of the name in turn.
  std::string connect(const std::string& host, std::uint16_t port, Deadline limit, Interrupt& interrupt);
  // Send the head and the body, read the answer. "" or what went wrong. The
  // connection stays open only if it can be used again.
  std::string exchange(const std::string& head, std::span<const Segment> body, Response& response, Deadline limit,
                       Interrupt& interrupt);
  void close() noexcept { socket_.reset(); }

 private:
  // Wait for any of the events; what came, or 0 when time is up.
  int wait(int events, Deadline limit, Interrupt& interrupt) const;
  std::string send_all(const std::string& head, std::span<const Segment> body, Response& response, Deadline limit,
                       Interrupt& interrupt);
  std::string receive(Response& response);

  UniqueFd socket_;
};

}  // namespace lockgate::clickhouse
