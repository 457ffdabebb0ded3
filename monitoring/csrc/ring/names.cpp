#include "ring/names.h"

#include <limits>
#include <stdexcept>
#include <utility>

#include "ring/dtype.h"

namespace lockgate {

std::uint32_t Names::declare(std::string site, std::int16_t layer, std::uint16_t shard_rank, std::string dtype) {
  const std::uint32_t bytes = item_bytes(dtype);
  if (bytes == 0) {
    std::string known;
    for (const auto& [name, size] : kItemBytes) known.append(known.empty() ? "" : ", ").append(name);
    throw std::invalid_argument("dtype is '" + dtype + "', expected one of: " + known);
  }
  if (site.empty()) throw std::invalid_argument("a site needs a name, found ''");
  auto key = std::make_tuple(site, layer, shard_rank, dtype);
  if (const auto found = slot_numbers_.find(key); found != slot_numbers_.end()) return found->second;
  const auto number = static_cast<std::uint32_t>(slots_.size());
  slots_.push_back(std::make_unique<Slot>(Slot{std::move(site), layer, shard_rank, std::move(dtype), bytes}));
  slot_numbers_.emplace(std::move(key), number);
  return number;
}

std::uint32_t Names::request(const std::string& id) {
  if (const auto found = request_numbers_.find(id); found != request_numbers_.end()) {
    // Asking for it again takes an earlier `forget` back.
    requests_[found->second]->forgotten = false;
    return found->second;
  }
  std::uint32_t number = 0;
  if (free_.empty()) {
    if (requests_.size() >= std::numeric_limits<std::uint32_t>::max()) throw std::invalid_argument("too many requests");
    free_.reserve(requests_.size() + 1);
    number = static_cast<std::uint32_t>(requests_.size());
    requests_.push_back(std::make_unique<Request>());
  } else {
    number = free_.back();
    free_.pop_back();
    requests_[number] = std::make_unique<Request>();
  }
  requests_[number]->id = id;
  request_numbers_.emplace(id, number);
  return number;
}

void Names::forget(std::uint32_t number) {
  Request& request = find_request(number);
  request.forgotten = true;
  if (request.records == 0) retire(number);
}

const Slot& Names::slot(std::uint32_t number) const {
  if (number >= slots_.size()) {
    throw std::invalid_argument("slot " + std::to_string(number) + " was never declared (there are " +
                                std::to_string(slots_.size()) + ")");
  }
  return *slots_[number];
}

Request& Names::find_request(std::uint32_t number) const {
  if (number >= requests_.size() || !requests_[number] || requests_[number]->forgotten) {
    throw std::invalid_argument("request " + std::to_string(number) + " is not known; it was never made, or forgotten");
  }
  return *requests_[number];
}

void Names::let_go(std::uint32_t number) noexcept {
  Request& request = *requests_[number];
  if (--request.records == 0 && request.forgotten) retire(number);
}

void Names::retire(std::uint32_t number) {
  request_numbers_.erase(requests_[number]->id);
  requests_[number].reset();
  free_.push_back(number);
}

}  // namespace lockgate
