// The ring as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "bind/callback_sink.h"
#include "sink/pipeline.h"
#include "sink/sink.h"

namespace lockgate {

// What a Python `Sink` object holds; at most one ring uses it at a time.
struct PySink {
  std::shared_ptr<Sink> sink;
  bool taken = false;
};

void bind_sinks(nanobind::module_& module);
void bind_ring(nanobind::module_& module);

}  // namespace lockgate
