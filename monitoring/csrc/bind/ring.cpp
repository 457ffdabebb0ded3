#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bind/narrow.h"
#include "bind/py_ring.h"
#include "cuda/cuda.h"
#include "ring/host_payload.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lockgate {

namespace {

constexpr double kCloseAtDealloc = 5.0;  // seconds

void lost(PyRing& self, const std::string& reason, std::uint64_t records) {
  if (reason == "hook") return self.ring().lost(Fail::kHook, records);
  if (reason == "policy") return self.ring().lost(Drop::kPolicy, records);
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
  for (std::size_t i = 0; i < kDropNames.size(); ++i)
    dropped[nb::str(kDropNames[i].data(), kDropNames[i].size())] = ledger.dropped[i];
  out["dropped"] = dropped;
  nb::dict failed;
  for (std::size_t i = 0; i < kFailNames.size(); ++i)
    failed[nb::str(kFailNames[i].data(), kFailNames[i].size())] = ledger.failed[i];
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
      flush_bytes != 0 ? flush_bytes : std::clamp<std::uint64_t>(capacity_bytes / 48, 64 * 1024, 4 * 1024 * 1024);
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
  new (self) PyRing(std::move(pipeline), sink);
}

}  // namespace

PyRing::~PyRing() {
  if (!pipeline || pipeline->closed()) return;
  const nb::gil_scoped_release unlocked;
  pipeline->close(kCloseAtDealloc);
}

void bind_ring(nb::module_& module) {
  nb::class_<PyRing> ring(module, "Ring");
  bind_push(ring);
  ring.def("__init__", &init, "sink"_a, nb::kw_only(), "run_id"_a, "model_id"_a, "capacity_bytes"_a = 64u << 20,
           "capacity_records"_a = 16384, "policy"_a = "block", "deadline"_a = 5.0, "sample_every"_a = 10,
           "flush_bytes"_a = 0, "flush_records"_a = 0, "flush_fill"_a = 0.5, "flush_seconds"_a = 1.0,
           "retry_seconds"_a = 10.0, "spool_dir"_a = "", "spool_bytes"_a = 1u << 30, "device"_a = -1)
      .def("declare",
           [](PyRing& self, std::string site, std::int64_t layer, std::int64_t shard_rank, std::string dtype) {
             return self.ring().declare(std::move(site), narrow<std::int16_t>(layer, "layer"),
                                        narrow<std::uint16_t>(shard_rank, "shard_rank"), std::move(dtype));
           })
      .def("request", [](PyRing& self, const std::string& id) { return self.ring().request(id); })
      .def("forget", [](PyRing& self, std::uint32_t number) { self.ring().forget(number); })
      .def("lost", &lost)
      .def("lost", [](PyRing& self, const std::string& reason) { lost(self, reason, 1); })
      .def(
          "flush",
          [](PyRing& self, double timeout) {
            const nb::gil_scoped_release unlocked;
            return self.pipeline->flush(timeout);
          },
          "timeout"_a)
      .def(
          "close",
          [](PyRing& self, double timeout) {
            const nb::gil_scoped_release unlocked;
            return self.pipeline->close(timeout);
          },
          "timeout"_a)
      .def_prop_ro("closed", [](const PyRing& self) { return self.pipeline->closed(); })
      .def_prop_ro("last_error", [](const PyRing& self) { return self.ring().last_error(); })
      .def("stats", &stats);
}

}  // namespace lockgate
