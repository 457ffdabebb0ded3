#include "ring/plan.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockgate {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

std::uint64_t product(std::span<const std::uint32_t> extents) noexcept {
  std::uint64_t out = 1;
  for (const std::uint32_t extent : extents) {
    if (extent != 0 && out > std::numeric_limits<std::uint64_t>::max() / extent) {
      return std::numeric_limits<std::uint64_t>::max();
    }
    out *= extent;
  }
  return out;
}

}  // namespace

std::uint64_t Extents::elements() const noexcept { return product(std::span(of).first(dims)); }

void cut(const Plan& plan, const Extents& shape, std::uint32_t token_dim, std::uint32_t column, const std::byte* data,
         std::uint64_t nbytes, std::vector<Piece>& pieces) {
  pieces.clear();
  if (token_dim < 1 || token_dim >= shape.dims) {
    refuse("token_dim is " + std::to_string(token_dim) + ", expected 1 to " +
           std::to_string(shape.dims == 0 ? 0 : shape.dims - 1) + " for a tensor of " + std::to_string(shape.dims) +
           " dimensions");
  }
  const std::uint64_t elements = shape.elements();
  if (elements == 0) return;
  const std::uint64_t item = nbytes / elements;
  const std::span<const std::uint32_t> extents(shape.of.data(), shape.dims);
  const std::uint64_t column_bytes = item * product(extents.subspan(token_dim + 1));
  const std::uint64_t stride = column_bytes * extents[token_dim];
  const std::uint64_t runs = product(extents.subspan(1, token_dim - 1));
  const std::uint64_t row_bytes = stride * runs;
  const std::uint64_t end = std::uint64_t{column} + extents[token_dim];

  pieces.reserve(plan.rows.size());
  for (const PlanRow& row : plan.rows) {
    if (row.row >= extents[0]) {
      refuse("the plan names batch row " + std::to_string(row.row) + ", the tensor has " + std::to_string(extents[0]));
    }
    if (row.last > end) {
      refuse("the plan needs columns up to " + std::to_string(row.last) + " of batch row " + std::to_string(row.row) +
             ", the tensor ends at column " + std::to_string(end));
    }
    const std::uint32_t first = std::max(row.first, column);
    if (first >= row.last) continue;
    const std::uint32_t tokens = row.last - first;
    const std::uint32_t token_start = row.token_start + (first - row.first);
    Piece piece{row.request, token_start, token_start + tokens, {}, {}};
    piece.shape.dims = shape.dims - 1;
    std::copy(extents.begin() + 1, extents.end(), piece.shape.of.begin());
    piece.shape.of[token_dim - 1] = tokens;
    piece.slice = {data + row.row * row_bytes + (first - column) * column_bytes, runs, tokens * column_bytes, stride};
    pieces.push_back(piece);
  }
}

std::uint64_t Plans::add(Plan plan) {
  for (const PlanRow& row : plan.rows) {
    if (row.first > row.last) {
      refuse("columns [" + std::to_string(row.first) + ", " + std::to_string(row.last) + ") of batch row " +
             std::to_string(row.row) + " end before they begin");
    }
    if (row.token_start > std::numeric_limits<std::uint32_t>::max() - (row.last - row.first)) {
      refuse("token " + std::to_string(row.token_start) + " of batch row " + std::to_string(row.row) +
             " is too far out");
    }
  }
  plans_[next_ % kKept] = std::make_shared<const Plan>(std::move(plan));
  return next_++;
}

std::shared_ptr<const Plan> Plans::find(std::uint64_t number) const {
  if (number >= next_ || next_ - number > kKept) {
    refuse("plan " + std::to_string(number) + " is not kept; there are " + std::to_string(next_) + " and the newest " +
           std::to_string(kKept) + " stay");
  }
  return plans_[number % kKept];
}

}  // namespace lockgate
