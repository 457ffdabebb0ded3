#include "bind/push.h"

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bind/narrow.h"
#include "bind/py_ring.h"

namespace nb = nanobind;

namespace lockgate {

namespace {

Extents read_shape(const nb::tuple& shape) {
  Extents out;
  const std::size_t dims = shape.size();
  if (dims > kMaxDims) {
    throw std::invalid_argument("shape has " + std::to_string(dims) + " dimensions, expected at most 8");
  }
  for (std::size_t i = 0; i < dims; ++i) {
    // No conversion of other types: a float extent is a mistake.
    const unsigned long value = PyLong_AsUnsignedLong(PyTuple_GetItem(shape.ptr(), static_cast<Py_ssize_t>(i)));
    if (value == static_cast<unsigned long>(-1) && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (value > UINT32_MAX)
      throw std::invalid_argument("an extent of shape is " + std::to_string(value) + ", expected less than 2^32");
    out.of[i] = static_cast<std::uint32_t>(value);
  }
  out.dims = static_cast<std::uint32_t>(dims);
  return out;
}

void check_pointer(std::uintptr_t data_ptr, std::uint64_t nbytes) {
  if (data_ptr == 0 && nbytes > 0)
    throw std::invalid_argument("data_ptr is 0 for " + std::to_string(nbytes) + " bytes");
}

// Keep the GIL for what is over in an instant, give it away for the rest.
Admission push_one(Ring& ring, const Header& header, const Slice& slice, std::uintptr_t stream) {
  if (slice.bytes() < kReleaseGilFrom) {
    const Admission admission = ring.push(header, slice, stream, false);
    if (admission != Admission::kWouldWait) return admission;
  }
  const nb::gil_scoped_release unlocked;
  return ring.push(header, slice, stream, true);
}

bool push(const PyRing& self, std::uint32_t slot, std::uint32_t request, std::uint64_t step, std::uint32_t call,
          std::uint64_t token_start, std::uint64_t token_end, const nb::tuple& shape, std::uintptr_t data_ptr,
          std::uint64_t nbytes, std::uintptr_t stream) {
  check_pointer(data_ptr, nbytes);
  if (token_end < token_start || token_end > UINT32_MAX) {
    throw std::invalid_argument("tokens [" + std::to_string(token_start) + ", " + std::to_string(token_end) +
                                ") are not a range");
  }
  Header header;
  header.slot = slot;
  header.request = request;
  header.call = narrow<std::uint16_t>(call, "call");
  header.token_start = static_cast<std::uint32_t>(token_start);
  header.token_end = static_cast<std::uint32_t>(token_end);
  header.step = step;
  header.shape = read_shape(shape);
  const Slice slice{reinterpret_cast<const std::byte*>(data_ptr), 1, nbytes, nbytes};
  return push_one(self.ring(), header, slice, stream) == Admission::kIn;
}

std::uint64_t push_rows(const PyRing& self, std::uint32_t slot, std::uint64_t plan_number, std::uint32_t call,
                        std::uint32_t token_dim, const nb::tuple& shape, std::uintptr_t data_ptr, std::uint64_t nbytes,
                        std::uint32_t column, std::uintptr_t stream) {
  check_pointer(data_ptr, nbytes);
  Ring& ring = self.ring();
  const Extents extents = read_shape(shape);
  const std::uint32_t item = ring.item_bytes(slot);
  const std::uint64_t elements = extents.elements();
  if (elements > UINT64_MAX / item || elements * item != nbytes) {
    throw std::invalid_argument("a tensor of " + std::to_string(nbytes) + " bytes does not hold " +
                                std::to_string(elements) + " elements of " + std::to_string(item) + " bytes");
  }
  const Rows rows{slot, narrow<std::uint16_t>(call, "call"), token_dim, column, stream};
  return push_pieces(ring, rows, *ring.find_plan(plan_number), extents, reinterpret_cast<const std::byte*>(data_ptr),
                     nbytes);
}

std::uint64_t plan(const PyRing& self, std::uint64_t step, const nb::sequence& rows) {
  Plan out{step, {}};
  for (const nb::handle each : rows) {
    const auto row = nb::cast<nb::tuple>(each);
    if (row.size() != 5) {
      throw std::invalid_argument("a row of a plan has " + std::to_string(row.size()) +
                                  " values, expected (request, row, first, last, token_start)");
    }
    out.rows.push_back({nb::cast<std::uint32_t>(row[0]), nb::cast<std::uint32_t>(row[1]),
                        nb::cast<std::uint32_t>(row[2]), nb::cast<std::uint32_t>(row[3]),
                        nb::cast<std::uint32_t>(row[4])});
  }
  return self.ring().add_plan(std::move(out));
}

}  // namespace

std::uint64_t push_pieces(Ring& ring, const Rows& rows, const Plan& plan, const Extents& shape, const std::byte* data,
                          std::uint64_t nbytes) {
  // Kept per thread: a hook runs for every layer, and allocating would be a good part of it.
  thread_local std::vector<Piece> pieces;
  cut(plan, shape, rows.token_dim, rows.column, data, nbytes, pieces);
  std::uint64_t in = 0;
  const auto push_piece = [&](const Piece& piece, bool may_wait) {
    Header header;
    header.slot = rows.slot;
    header.request = piece.request;
    header.call = rows.call;
    header.token_start = piece.token_start;
    header.token_end = piece.token_end;
    header.step = plan.step;
    header.shape = piece.shape;
    const Admission admission = ring.push(header, piece.slice, rows.stream, may_wait);
    in += admission == Admission::kIn ? 1 : 0;
    return admission;
  };
  std::size_t next = 0;
  if (nbytes < kReleaseGilFrom) {
    while (next < pieces.size() && push_piece(pieces[next], false) != Admission::kWouldWait) ++next;
  }
  if (next < pieces.size()) {
    const nb::gil_scoped_release unlocked;
    for (; next < pieces.size(); ++next) push_piece(pieces[next], true);
  }
  return in;
}

void bind_push(nb::class_<PyRing>& ring) {
  // Overloads, not default arguments: those make nanobind take its slower path.
  ring.def("push", &push)
      .def("push",
           [](const PyRing& self, std::uint32_t slot, std::uint32_t request, std::uint64_t step, std::uint32_t call,
              std::uint64_t token_start, std::uint64_t token_end, const nb::tuple& shape, std::uintptr_t data_ptr,
              std::uint64_t nbytes) {
             return push(self, slot, request, step, call, token_start, token_end, shape, data_ptr, nbytes, 0);
           })
      .def("plan", &plan)
      .def("push_rows", &push_rows)
      .def("push_rows",
           [](const PyRing& self, std::uint32_t slot, std::uint64_t number, std::uint32_t call, std::uint32_t token_dim,
              const nb::tuple& shape, std::uintptr_t data_ptr, std::uint64_t nbytes, std::uint32_t column) {
             return push_rows(self, slot, number, call, token_dim, shape, data_ptr, nbytes, column, 0);
           })
      .def("push_rows",
           [](const PyRing& self, std::uint32_t slot, std::uint64_t number, std::uint32_t call, std::uint32_t token_dim,
              const nb::tuple& shape, std::uintptr_t data_ptr, std::uint64_t nbytes) {
             return push_rows(self, slot, number, call, token_dim, shape, data_ptr, nbytes, 0, 0);
           });
}

}  // namespace lockgate
