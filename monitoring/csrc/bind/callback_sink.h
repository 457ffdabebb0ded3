// A Python callable as a sink.
#pragma once

#include <Python.h>

#include <atomic>
#include <string>

#include "sink/sink.h"

namespace lockgate {

// Calls `callback(block: bytes, rows: int, token: str)` on the drain thread,
// with the GIL. Raw C API and no owner objects around the call: when the
// interpreter ends while the callback runs, CPython stops this thread by
// unwinding it, and nothing may touch Python on the way.
class CallbackSink final : public Sink {
 public:
  // With the GIL. Takes references of its own.
  CallbackSink(PyObject* callback, std::string name, PyObject* fatal);
  ~CallbackSink() override;

  Outcome send(const clickhouse::Block& block, Interrupt& interrupt) override;
  std::string target() const override { return "callback:" + name_; }
  void finish() override;
  void drop_callbacks() override { finish(); }

 private:
  Outcome take_exception() const;

  PyObject* callback_;
  std::string name_;
  PyObject* fatal_;
};

}  // namespace lockgate
