// Which columns of a batched tensor belong to which request.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ring/slice.h"

namespace lockgate {

inline constexpr std::size_t kMaxDims = 8;

// A tensor's extents; at most `kMaxDims`.
struct Extents {
  std::array<std::uint32_t, kMaxDims> of{};
  std::uint32_t dims = 0;

  // Saturates at the largest number instead of wrapping.
  std::uint64_t elements() const noexcept;
};

struct PlanRow {
  std::uint32_t request;
  std::uint32_t row;
  std::uint32_t first;  // real tokens are the columns [first, last)
  std::uint32_t last;
  std::uint32_t token_start;
};

struct Plan {
  std::uint64_t step;
  std::vector<PlanRow> rows;
};

// One record-to-be of a batched tensor.
struct Piece {
  std::uint32_t request;
  std::uint32_t token_start;
  std::uint32_t token_end;
  Extents shape;
  Slice slice;
};

// Cut a contiguous tensor [b, ...] along the plan into `pieces`, whose old
// content goes. `token_dim` >= 1 names the column axis, `column` the column of
// its first entry. Throws std::invalid_argument when the plan does not fit the tensor.
void cut(const Plan& plan, const Extents& shape, std::uint32_t token_dim, std::uint32_t column, const std::byte* data,
         std::uint64_t nbytes, std::vector<Piece>& pieces);

// The newest plans by number. Not thread-safe: the ring keeps it under its lock.
class Plans {
 public:
  static constexpr std::size_t kKept = 64;

  std::uint64_t add(Plan plan);
  // Throws std::invalid_argument for a number that is not kept.
  std::shared_ptr<const Plan> find(std::uint64_t number) const;

 private:
  std::array<std::shared_ptr<const Plan>, kKept> plans_;
  std::uint64_t next_ = 0;
};

}  // namespace lockgate
