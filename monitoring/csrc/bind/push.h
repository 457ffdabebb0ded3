// Pushing from a thread that holds the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ring/plan.h"
#include "ring/ring.h"

namespace lockgate {

// Copies of this size and more give the GIL away, and so does every wait.
inline constexpr std::size_t kReleaseGilFrom = 64 * 1024;

// What the records of one batched tensor share.
struct Rows {
  std::uint32_t slot;
  std::uint16_t call;
  std::uint32_t token_dim;
  std::uint32_t column;
  std::uintptr_t stream;
};

// One record per row of the plan; how many are in. Throws std::invalid_argument
// when the plan does not fit the tensor, and nothing is recorded then.
std::uint64_t push_pieces(Ring& ring, const Rows& rows, const Plan& plan, const Extents& shape, const std::byte* data,
                          std::uint64_t nbytes);

}  // namespace lockgate
