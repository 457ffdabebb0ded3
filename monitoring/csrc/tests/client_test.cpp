#include "clickhouse/client.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>

#include "check.h"
#include "clickhouse/encoder.h"
#include "clickhouse/text.h"

using namespace lockgate;
using namespace lockgate::clickhouse;

// One thread that accepts connections and hands each to `talk`.
class Server {
 public:
  explicit Server(std::function<void(int)> talk) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQUAL(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    CHECK_EQUAL(::listen(listener_.get(), 8), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, talk] {
      for (;;) {
        const UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
        if (!peer) return;
        ++connections;
        talk(peer.get());
      }
    });
  }
  ~Server() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::uint16_t port() const { return port_; }
  std::atomic<int> connections{0};

 private:
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

// Read one request; false when the peer has gone.
static bool read_request(int fd) {
  std::string head;
  char byte = 0;
  while (!head.ends_with("\r\n\r\n")) {
    if (::recv(fd, &byte, 1, 0) != 1) return false;
    head.push_back(byte);
  }
  std::size_t left = std::stoul(head.substr(head.find("Content-Length: ") + 16));
  char buffer[65536];
  while (left > 0) {
    const ssize_t size = ::recv(fd, buffer, std::min(sizeof buffer, left), 0);
    if (size <= 0) return false;
    left -= static_cast<std::size_t>(size);
  }
  return true;
}

static void answer(int fd, const std::string& text) { ::send(fd, text.data(), text.size(), MSG_NOSIGNAL); }

static const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

static ClientSettings settings_for(std::uint16_t port) {
  ClientSettings settings;
  settings.host = "127.0.0.1";
  settings.port = port;
  settings.database = "d";
  settings.table = "t";
  settings.timeout = 10.0;
  return settings;
}

static Block block_of(std::size_t nbytes) {
  static const std::vector<std::byte> memory(32 << 20, std::byte{1});
  static const std::uint32_t shape[1] = {1};
  Row row;
  row.dims = 1;
  row.shape = shape;
  row.data = memory.data();
  row.nbytes = nbytes;
  return Encoder("r", "m").encode({&row, 1}, 1, false);
}

TEST(inserts_share_one_connection) {
  Server server([](int fd) {
    while (read_request(fd)) answer(fd, kOk);
  });
  Interrupt interrupt;
  Client client(settings_for(server.port()));
  for (const std::size_t size : {10u, 100000u, 32u << 20}) {
    CHECK(client.insert(block_of(size), interrupt).answer == Answer::kDone);
  }
  client.disconnect();
  CHECK_EQUAL(server.connections.load(), 1);
  CHECK_EQUAL(client.reconnects(), 0u);
}

TEST(a_connection_closed_between_requests_is_opened_again) {
  Server server([](int fd) {
    if (read_request(fd)) answer(fd, kOk);
  });
  Interrupt interrupt;
  Client client(settings_for(server.port()));
  for (int i = 0; i < 3; ++i) CHECK(client.insert(block_of(10), interrupt).answer == Answer::kDone);
  CHECK_EQUAL(client.reconnects(), 2u);
}

TEST(a_fresh_connection_that_breaks_is_not_tried_for_ever) {
  Server server([](int) {});
  Interrupt interrupt;
  Client client(settings_for(server.port()));
  const InsertResult result = client.insert(block_of(10), interrupt);
  CHECK(result.answer == Answer::kAgain);
  CHECK(result.message.find("closed without an answer") != std::string::npos ||
        result.message.find("broke while") != std::string::npos);
}

TEST(an_early_answer_to_a_large_block_counts) {
  Server server([](int fd) { answer(fd, "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nCode: 516"); });
  Interrupt interrupt;
  Client client(settings_for(server.port()));
  // Whether the answer or the reset arrives first is the network's choice; the answer must be found when it is there.
  const InsertResult result = client.insert(block_of(32 << 20), interrupt);
  CHECK(result.answer == Answer::kNever || result.message.find("broke") != std::string::npos);
}

TEST(a_silent_server_ends_at_the_limit_and_at_the_interrupt) {
  std::atomic<bool> over{false};
  Server server([&](int fd) {
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    static_cast<void>(fd);
  });
  ClientSettings settings = settings_for(server.port());
  settings.timeout = 0.05;
  Interrupt none;
  CHECK_EQUAL(Client(settings).insert(block_of(10), none).message, "no answer in time");
  settings.timeout = 60.0;
  Interrupt interrupt;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    interrupt.stop_by(Deadline::after(0.03));
  });
  const Deadline patience = Deadline::after(10.0);
  CHECK(Client(settings).insert(block_of(32 << 20), interrupt).answer == Answer::kAgain);
  CHECK(!patience.passed());
  stopper.join();
  over = true;
}

TEST(codes_tell_never_from_later) {
  CHECK(judge(200, 0) == Answer::kDone);
  CHECK(judge(200, 241) == Answer::kAgain);
  CHECK(judge(200, 60) == Answer::kNever);
  CHECK(judge(500, 60) == Answer::kNever);
  CHECK(judge(500, 252) == Answer::kAgain);
  CHECK(judge(503, 0) == Answer::kAgain);
  CHECK(judge(429, 0) == Answer::kAgain);
  CHECK(judge(302, 0) == Answer::kNever);
  CHECK(judge(404, 0) == Answer::kNever);
  CHECK_EQUAL(code_in_body("Code: 60, e.displayText() = x"), 60);
  CHECK_EQUAL(code_in_body("Ok.\n"), 0);
  CHECK_EQUAL(code_in_body("Code: x"), 0);
  CHECK_EQUAL(code_in_body(""), 0);
}

TEST(settings_that_do_not_fit_into_a_request_are_refused) {
  ClientSettings settings = settings_for(1);
  settings.user = "a\r\nX-Evil: 1";
  CHECK_THROWS(Client(settings), "user holds a control character");
  settings = settings_for(1);
  settings.path = "x";
  CHECK_THROWS(Client(settings), "path is 'x'");
  settings = settings_for(0);
  CHECK_THROWS(Client(settings), "port is 0");
  settings = settings_for(1);
  settings.timeout = 0;
  CHECK_THROWS(Client(settings), "timeout");
}

TEST(texts_are_safe_in_a_url_and_in_a_message) {
  CHECK_EQUAL(percent_encode("a b&c=d/\xc3\xa4"), "a%20b%26c%3Dd%2F%C3%A4");
  CHECK_EQUAL(quote_identifier("a`b\\c"), "`a\\`b\\\\c`");
  CHECK_EQUAL(tidy_message("  a\n\tb  \x01 c", ""), "a b c");
  CHECK_EQUAL(tidy_message("key=sesame sesame!", "sesame"), "key=*** ***!");
  CHECK_EQUAL(tidy_message("aaaa", "aaa"), "***a");
  CHECK_EQUAL(tidy_message("error Stack trace: 0 1 2", ""), "error");
  CHECK_EQUAL(tidy_message(std::string(1000, 'x'), "", 10), "xxxxxxxxxx...");
}

TEST_MAIN
