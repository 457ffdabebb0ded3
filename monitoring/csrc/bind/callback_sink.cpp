#include "bind/callback_sink.h"

#include <utility>

namespace lockgate {

namespace {

// Type and text of an exception, on one line.
std::string describe(PyObject* exception) {
  std::string out;
  if (PyObject* type = PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(exception)), "__name__")) {
    if (PyObject* bytes = PyUnicode_AsUTF8String(type)) {
      out = PyBytes_AsString(bytes);
      Py_DECREF(bytes);
    }
    Py_DECREF(type);
  }
  if (PyObject* text = PyObject_Str(exception)) {
    if (PyObject* bytes = PyUnicode_AsEncodedString(text, "utf-8", "replace")) {
      out += std::string(": ") + PyBytes_AsString(bytes);
      Py_DECREF(bytes);
    }
    Py_DECREF(text);
  }
  PyErr_Clear();
  if (out.size() > 400) out = out.substr(0, 400) + "...";
  return out;
}

}  // namespace

CallbackSink::CallbackSink(PyObject* callback, std::string name, PyObject* fatal)
    : callback_(callback), name_(std::move(name)), fatal_(fatal) {
  Py_INCREF(callback_);
  Py_INCREF(fatal_);
}

CallbackSink::~CallbackSink() { finish(); }

void CallbackSink::finish() {
  if (callback_ == nullptr || Py_IsInitialized() == 0) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(std::exchange(callback_, nullptr));
  Py_DECREF(std::exchange(fatal_, nullptr));
  PyGILState_Release(state);
}

Outcome CallbackSink::send(const clickhouse::Block& block, Interrupt&) {
  if (Py_IsInitialized() == 0) return {Verdict::kRetry, "the interpreter has ended"};
  const PyGILState_STATE state = PyGILState_Ensure();
  Outcome outcome;
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(block.size()));
  if (bytes != nullptr) {
    // Nobody else knows the object yet, so it is filled without the GIL.
    std::byte* const out = reinterpret_cast<std::byte*>(PyBytes_AsString(bytes));
    PyThreadState* const thread = PyEval_SaveThread();
    block.gather(out);
    PyEval_RestoreThread(thread);
  }
  PyObject* rows = bytes == nullptr ? nullptr : PyLong_FromUnsignedLongLong(block.rows);
  PyObject* token = rows == nullptr ? nullptr : PyUnicode_FromString(block.token.c_str());
  PyObject* result = token == nullptr ? nullptr : PyObject_CallFunctionObjArgs(callback_, bytes, rows, token, nullptr);
  if (result == nullptr) outcome = take_exception();
  Py_XDECREF(result);
  Py_XDECREF(token);
  Py_XDECREF(rows);
  Py_XDECREF(bytes);
  PyGILState_Release(state);
  return outcome;
}

Outcome CallbackSink::take_exception() const {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const bool fatal = value != nullptr && PyErr_GivenExceptionMatches(value, fatal_) != 0;
  Outcome outcome{fatal ? Verdict::kFatal : Verdict::kRetry, value == nullptr ? "unknown error" : describe(value)};
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return outcome;
}

}  // namespace lockgate
