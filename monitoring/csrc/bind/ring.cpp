#include <nanobind/stl/string.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bind/py_ring.h"
#include "cuda/cuda.h"
#include "ring/host_payload.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lockgate {

namespace {

constexpr std::size_t kReleaseGilFrom = 64 * 1024;
constexpr double kCloseAtDealloc = 5.0;  // seconds

// Deallocating an open ring closes it, with a limit.
struct PyRing {
  std::shared_ptr<Pipeline> pipeline;
  nb::object sink;

  ~PyRing() {
    if (!pipeline || pipeline->closed()) return;
    const nb::gil_scoped_release unlocked;
    pipeline->close(kCloseAtDealloc);
  }
};

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
    if (value > UINT32_MAX) throw std::invalid_argument("an extent of shape is " + std::to_string(value) + ", expected less than 2^32");
    out.of[i] = static_cast<std::uint32_t>(value);
  }
  out.dims = static_cast<std::uint32_t>(dims);
  return out;
}

void check_pointer(std::uintptr_t data_ptr, std::uint64_t nbytes) {
  if (data_ptr == 0 && nbytes > 0) throw std::invalid_argument("data_ptr is 0 for " + std::to_string(nbytes) + " bytes");
}

// The column is as narrow as this; a larger number is a mistake, not a smaller one.
template <typename To, typename From>
To narrow(From value, const char* name) {
  if (!std::in_range<To>(value)) {
    throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", expected " +
                                std::to_string(std::numeric_limits<To>::min()) + " to " +
                                std::to_string(std::numeric_limits<To>::max()));
  }
  return static_cast<To>(value);
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

bool push(PyRing& self, std::uint32_t slot, std::uint32_t request, std::uint64_t step, std::uint32_t call,
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
  return push_one(self.pipeline->ring(), header, slice, stream) == Admission::kIn;
}

std::uint64_t push_rows(PyRing& self, std::uint32_t slot, std::uint64_t plan_number, std::uint32_t call,
                        std::uint32_t token_dim, const nb::tuple& shape, std::uintptr_t data_ptr, std::uint64_t nbytes,
                        std::uint32_t column, std::uintptr_t stream) {
  check_pointer(data_ptr, nbytes);
  narrow<std::uint16_t>(call, "call");
  Ring& ring = self.pipeline->ring();
  const Extents extents = read_shape(shape);
  const std::uint32_t item = ring.item_bytes(slot);
  const std::uint64_t elements = extents.elements();
  if (elements > UINT64_MAX / item || elements * item != nbytes) {
    throw std::invalid_argument("a tensor of " + std::to_string(nbytes) + " bytes does not hold " +
                                std::to_string(elements) + " elements of " + std::to_string(item) + " bytes");
  }
  const std::shared_ptr<const Plan> plan = ring.find_plan(plan_number);
  const std::vector<Piece> pieces =
      cut(*plan, extents, token_dim, column, reinterpret_cast<const std::byte*>(data_ptr), nbytes);
  std::uint64_t in = 0;
  const auto push_piece = [&](const Piece& piece, bool may_wait) {
    Header header;
    header.slot = slot;
    header.request = piece.request;
    header.call = static_cast<std::uint16_t>(call);
    header.token_start = piece.token_start;
    header.token_end = piece.token_end;
    header.step = plan->step;
    header.shape = piece.shape;
    const Admission admission = ring.push(header, piece.slice, stream, may_wait);
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

std::uint64_t plan(PyRing& self, std::uint64_t step, const nb::sequence& rows) {
  Plan out{step, {}};
  for (const nb::handle each : rows) {
    const auto row = nb::cast<nb::tuple>(each);
    if (row.size() != 5) {
      throw std::invalid_argument("a row of a plan has " + std::to_string(row.size()) +
                                  " values, expected (request, row, first, last, token_start)");
    }
    out.rows.push_back({nb::cast<std::uint32_t>(row[0]), nb::cast<std::uint32_t>(row[1]), nb::cast<std::uint32_t>(row[2]),
                        nb::cast<std::uint32_t>(row[3]), nb::cast<std::uint32_t>(row[4])});
  }
  return self.pipeline->ring().add_plan(std::move(out));
}

void lost(PyRing& self, const std::string& reason, std::uint64_t records) {
  if (reason == "hook") return self.pipeline->ring().lost(Fail::kHook, records);
  if (reason == "policy") return self.pipeline->ring().lost(Drop::kPolicy, records);
  throw std::invalid_argument("reason is '" + reason + "', expected one of: hook, policy");
}

nb::dict stats(PyRing& self) {
  const Pipeline& pipeline = *self.pipeline;
  const Ledger ledger = pipeline.ring().snapshot();
  nb::dict out;
  out["accepted"] = ledger.accepted;
  out["written"] = ledger.written;
  out["pending"] = ledger.pending;
  nb::dict dropped;
  for (std::size_t i = 0; i < kDropNames.size(); ++i) dropped[nb::str(kDropNames[i].data(), kDropNames[i].size())] = ledger.dropped[i];
  out["dropped"] = dropped;
  nb::dict failed;
  for (std::size_t i = 0; i < kFailNames.size(); ++i) failed[nb::str(kFailNames[i].data(), kFailNames[i].size())] = ledger.failed[i];
  out["failed"] = failed;
  out["bytes_accepted"] = ledger.bytes_accepted;
  out["bytes_written"] = ledger.bytes_written;
  out["bytes_pending"] = ledger.bytes_pending;
  out["spooled"] = ledger.spooled;
  out["replayed"] = ledger.replayed;
  out["blocks"] = ledger.blocks;
  out["retries"] = ledger.retries;
  out["reconnects"] = pipeline.reconnects();
  out["capacity_bytes"] = pipeline.ring().capacity_bytes();
  out["capacity_records"] = pipeline.ring().limits().capacity_records;
  out["peak_bytes"] = ledger.peak_bytes;
  out["peak_records"] = ledger.peak_records;
  out["seq_end"] = ledger.accepted;
  out["closed"] = pipeline.closed();
  out["last_error"] = pipeline.ring().last_error();
  return out;
}

void init(PyRing* self, const nb::object& sink, std::string run_id, std::string model_id, std::uint64_t capacity_bytes,
          std::uint64_t capacity_records, const std::string& policy, double deadline, std::uint64_t sample_every,
          std::uint64_t flush_bytes, std::uint64_t flush_records, double flush_fill, double flush_seconds,
          double retry_seconds, std::string spool_dir, std::uint64_t spool_bytes, int device) {
  PySink& target = nb::cast<PySink&>(sink);
  if (target.taken) throw std::invalid_argument("the sink to " + target.sink->target() + " already belongs to a ring");
  const auto chosen = parse_policy(policy);
  if (!chosen) throw std::invalid_argument("policy is '" + policy + "', expected one of: " + std::string(kPolicyNames));
  if (capacity_bytes < 4096) {
    throw std::invalid_argument("capacity_bytes is " + std::to_string(capacity_bytes) + ", expected at least 4096");
  }
  PipelineSettings settings;
  settings.ring.capacity_records = capacity_records;
  settings.ring.policy = *chosen;
  settings.ring.deadline = deadline;
  settings.ring.sample_every = sample_every;
  settings.ring.flush_bytes =
      flush_bytes != 0 ? flush_bytes : std::clamp<std::uint64_t>(capacity_bytes / 32, 64 * 1024, 4 * 1024 * 1024);
  settings.ring.flush_records = flush_records != 0 ? flush_records : std::max<std::uint64_t>(capacity_records / 4, 1);
  settings.ring.flush_fill = flush_fill;
  settings.ring.flush_seconds = flush_seconds;
  settings.run_id = std::move(run_id);
  settings.model_id = std::move(model_id);
  settings.retry_seconds = retry_seconds;
  settings.spool_dir = std::move(spool_dir);
  settings.spool_bytes = spool_bytes;
  std::shared_ptr<Pipeline> pipeline;
  {
    const nb::gil_scoped_release unlocked;  // faulting a large ring in takes time
    std::unique_ptr<Payload> payload;
    if (device >= 0) {
      payload = cuda::make_payload(device, capacity_bytes);
    } else {
      payload = std::make_unique<HostPayload>(capacity_bytes);
    }
    pipeline = Pipeline::start(settings, std::move(payload), target.sink);
  }
  target.taken = true;
  new (self) PyRing{std::move(pipeline), sink};
}

}  // namespace

void bind_ring(nb::module_& module) {
  nb::class_<PyRing>(module, "Ring")
      .def("__init__", &init, "sink"_a, nb::kw_only(), "run_id"_a, "model_id"_a, "capacity_bytes"_a = 64u << 20,
           "capacity_records"_a = 16384, "policy"_a = "block", "deadline"_a = 5.0, "sample_every"_a = 10,
           "flush_bytes"_a = 0, "flush_records"_a = 0, "flush_fill"_a = 0.5, "flush_seconds"_a = 1.0,
           "retry_seconds"_a = 10.0, "spool_dir"_a = "", "spool_bytes"_a = 1u << 30, "device"_a = -1)
      .def("declare",
           [](PyRing& self, std::string site, std::int64_t layer, std::int64_t shard_rank, std::string dtype) {
             return self.pipeline->ring().declare(std::move(site), narrow<std::int16_t>(layer, "layer"),
                                                  narrow<std::uint16_t>(shard_rank, "shard_rank"), std::move(dtype));
           })
      .def("request", [](PyRing& self, const std::string& id) { return self.pipeline->ring().request(id); })
      .def("forget", [](PyRing& self, std::uint32_t number) { self.pipeline->ring().forget(number); })
      .def("push", &push)
      .def("push",
           [](PyRing& self, std::uint32_t slot, std::uint32_t request, std::uint64_t step, std::uint32_t call,
              std::uint64_t token_start, std::uint64_t token_end, const nb::tuple& shape, std::uintptr_t data_ptr,
              std::uint64_t nbytes) {
             return push(self, slot, request, step, call, token_start, token_end, shape, data_ptr, nbytes, 0);
           })
      .def("plan", &plan)
      .def("push_rows", &push_rows)
      .def("push_rows",
           [](PyRing& self, std::uint32_t slot, std::uint64_t number, std::uint32_t call, std::uint32_t token_dim,
              const nb::tuple& shape, std::uintptr_t data_ptr, std::uint64_t nbytes, std::uint32_t column) {
             return push_rows(self, slot, number, call, token_dim, shape, data_ptr, nbytes, column, 0);
           })
      .def("push_rows",
           [](PyRing& self, std::uint32_t slot, std::uint64_t number, std::uint32_t call, std::uint32_t token_dim,
              const nb::tuple& shape, std::uintptr_t data_ptr, std::uint64_t nbytes) {
             return push_rows(self, slot, number, call, token_dim, shape, data_ptr, nbytes, 0, 0);
           })
      .def("lost", &lost)
      .def("lost", [](PyRing& self, const std::string& reason) { lost(self, reason, 1); })
      .def("flush",
           [](PyRing& self, double timeout) {
             const nb::gil_scoped_release unlocked;
             return self.pipeline->flush(timeout);
           }, "timeout"_a)
      .def("close",
           [](PyRing& self, double timeout) {
             const nb::gil_scoped_release unlocked;
             return self.pipeline->close(timeout);
           }, "timeout"_a)
      .def_prop_ro("closed", [](const PyRing& self) { return self.pipeline->closed(); })
      .def_prop_ro("last_error", [](const PyRing& self) { return self.pipeline->ring().last_error(); })
      .def("stats", &stats);
}

}  // namespace lockgate
