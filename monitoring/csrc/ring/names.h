// Interned texts: what many records share is stored once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace lockgate {

// Site, layer, shard and element type of a record. Lives as long as its ring.
struct Slot {
  std::string site;
  std::int16_t layer;
  std::uint16_t shard_rank;
  std::string dtype;
  std::uint32_t item_bytes;
};

// A request's id, counted by the records that use it.
struct Request {
  std::string id;
  std::uint64_t records = 0;
  bool forgotten = false;
};

// Numbers for slots and requests. Not thread-safe: the ring keeps it under its
// lock. Objects handed out stay where they are. Unknown numbers and element
// types throw std::invalid_argument.
class Names {
 public:
  std::uint32_t declare(std::string site, std::int16_t layer, std::uint16_t shard_rank, std::string dtype);
  std::uint32_t request(const std::string& id);
  void forget(std::uint32_t number);

  const Slot& slot(std::uint32_t number) const;
  Request& find_request(std::uint32_t number) const;

  // A record starts and stops using a request.
  void hold(Request& request) noexcept { ++request.records; }
  void let_go(std::uint32_t number) noexcept;

 private:
  void retire(std::uint32_t number);

  std::vector<std::unique_ptr<Slot>> slots_;
  std::map<std::tuple<std::string, std::int16_t, std::uint16_t, std::string>, std::uint32_t> slot_numbers_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::unordered_map<std::string, std::uint32_t> request_numbers_;
  std::vector<std::uint32_t> free_;  // always has room for every number: retiring never allocates
};

}  // namespace lockgate
