#include "clickhouse/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace lockgate::clickhouse {

namespace {

constexpr std::size_t kPieces = 256;  // of one gather write; the kernel takes at most 1024
constexpr const char* kTimedOut = "no answer in time";

std::string reason(int error) { return std::strerror(error); }

}  // namespace

bool Connection::stale() const noexcept {
  pollfd entry{socket_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) != 0;
}

int Connection::wait(int events, Deadline limit, Interrupt& interrupt) const {
  for (;;) {
    const Deadline end = interrupt.limit(limit);
    std::array<pollfd, 2> entries{{{socket_.get(), static_cast<short>(events), 0}, {interrupt.fd(), POLLIN, 0}}};
    const int count = ::poll(entries.data(), entries.size(), end.milliseconds());
    if (count < 0 && errno != EINTR) return 0;
    if (count > 0 && entries[1].revents != 0) interrupt.clear();
    if (count > 0 && entries[0].revents != 0) return entries[0].revents;
    if (interrupt.limit(limit).passed()) return 0;
  }
}

std::string Connection::connect(const std::string& host, std::uint16_t port, Deadline limit, Interrupt& interrupt) {
  close();
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) return "the host name cannot be resolved: " + std::string(::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);

  std::string problem = "the host name has no address";
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    socket_ = UniqueFd(
        ::socket(address->ai_family, address->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address->ai_protocol));
    if (!socket_) {
      problem = "no socket: " + reason(errno);
      continue;
    }
    if (::connect(socket_.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS) {
      problem = "cannot connect: " + reason(errno);
      close();
      continue;
    }
    if (wait(POLLOUT, limit, interrupt) == 0) {
      close();
      return "cannot connect in time";
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      problem = "cannot connect: " + reason(error);
      close();
      continue;
    }
    const int on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return "";
  }
  return problem;
}

std::string Connection::exchange(const std::string& head, std::span<const Segment> body, Response& response,
                                 Deadline limit, Interrupt& interrupt) {
  std::string problem = send_all(head, body, response, limit, interrupt);
  // A server that refuses a request early answers and closes while we still send: its answer is what counts.
  const bool cut_off = !problem.empty() && problem != kTimedOut;
  const std::string sending = problem;
  if (cut_off) problem.clear();
  while (problem.empty() && !response.done() && !response.failed()) {
    if (wait(POLLIN, limit, interrupt) == 0) {
      problem = kTimedOut;
    } else {
      problem = receive(response);
    }
  }
  if (problem.empty() && response.failed()) {
    problem = cut_off && !response.started() ? sending : "the answer cannot be read: " + response.problem();
  }
  if (!problem.empty() || cut_off || !response.keep_alive()) close();
  return problem;
}

std::string Connection::send_all(const std::string& head, std::span<const Segment> body, Response& response,
                                 Deadline limit, Interrupt& interrupt) {
  std::vector<iovec> pieces;
  pieces.reserve(body.size() + 1);
  pieces.push_back({const_cast<char*>(head.data()), head.size()});
  for (const Segment& segment : body) {
    if (segment.size > 0) pieces.push_back({const_cast<std::byte*>(segment.data), segment.size});
  }
  std::size_t next = 0;
  while (next < pieces.size()) {
    msghdr message{};
    message.msg_iov = &pieces[next];
    message.msg_iovlen = std::min(kPieces, pieces.size() - next);
    ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return "the connection broke while sending: " + reason(errno);
      const int came = wait(POLLIN | POLLOUT, limit, interrupt);
      if (came == 0) return kTimedOut;
      if ((came & POLLIN) != 0) {
        if (std::string problem = receive(response); !problem.empty()) return problem;
        // The rest would be read by nobody.
        if (response.done() || response.failed()) return "the server answered before it had everything";
      }
      continue;
    }
    for (auto left = static_cast<std::size_t>(sent); left > 0;) {
      iovec& piece = pieces[next];
      const std::size_t part = std::min(left, piece.iov_len);
      piece.iov_base = static_cast<char*>(piece.iov_base) + part;
      piece.iov_len -= part;
      left -= part;
      if (piece.iov_len == 0) ++next;
    }
  }
  return "";
}

std::string Connection::receive(Response& response) {
  std::array<char, 16384> buffer;
  const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (size > 0) {
    response.feed(buffer.data(), static_cast<std::size_t>(size));
  } else if (size == 0) {
    response.end_of_stream();
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    if (!response.started()) {
      response.end_of_stream();
      return "";
    }
    return "the connection broke while reading the answer: " + reason(errno);
  }
  return "";
}

}  // namespace lockgate::clickhouse
