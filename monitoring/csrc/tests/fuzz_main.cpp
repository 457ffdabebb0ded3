// Drives a fuzz target where the compiler has no libFuzzer: random inputs and
// random changes of the seeds, from a fixed start, for a number of rounds.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

static const std::vector<std::string> kSeeds{
    std::string("\x07") + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
    std::string("\x01") +
        "HTTP/1.1 500 E\r\nTransfer-Encoding: chunked\r\nX-ClickHouse-Exception-Code: "
        "60\r\n\r\nA;x\r\n0123456789\r\n0\r\n\r\n",
    std::string("\xff") + "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 No Content\r\n\r\n",
    "",
};

int main(int count, char** arguments) {
  const long rounds = count > 1 ? std::atol(arguments[1]) : 20000;
  std::mt19937_64 random(20240229);
  for (long round = 0; round < rounds; ++round) {
    std::string input = kSeeds[random() % kSeeds.size()];
    const std::size_t changes = random() % 12;
    for (std::size_t i = 0; i < changes; ++i) {
      const std::size_t at = input.empty() ? 0 : random() % input.size();
      const char byte = static_cast<char>(random());
      switch (random() % 5) {
        case 0:
          input.insert(at, 1, byte);
          break;
        case 1:
          if (!input.empty()) input[at] = byte;
          break;
        case 2:
          if (!input.empty()) input.erase(at, 1 + random() % 8);
          break;
        case 3:
          input.insert(at, input.substr(at, random() % 40));
          break;
        default:
          input.append(random() % 200, byte);
          break;
      }
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  }
  std::cerr << rounds << " inputs\n";
  return 0;
}
