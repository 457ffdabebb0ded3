// The ring and the sinks as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "sink/pipeline.h"
#include "sink/sink.h"

namespace lockgate {

// What a Python `Sink` object holds; at most one ring uses it at a time.
struct PySink {
  std::shared_ptr<Sink> sink;
  bool taken = false;
};

// What a Python `Ring` object holds. Deallocating an open ring closes it, with a limit.
struct PyRing {
  PyRing(std::shared_ptr<Pipeline> made, nanobind::object target)
      : pipeline(std::move(made)), sink(std::move(target)) {}
  ~PyRing();
  PyRing(const PyRing&) = delete;
  PyRing& operator=(const PyRing&) = delete;

  Ring& ring() const { return pipeline->ring(); }

  std::shared_ptr<Pipeline> pipeline;
  nanobind::object sink;
};

void bind_sinks(nanobind::module_& module);
void bind_ring(nanobind::module_& module);
void bind_push(nanobind::class_<PyRing>& ring);
void bind_taps(nanobind::module_& module);

}  // namespace lockgate
