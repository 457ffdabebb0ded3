#include <nanobind/stl/string.h>

#include <stdexcept>

#include "bind/callback_sink.h"
#include "bind/py_ring.h"
#include "sink/http_sink.h"
#include "sink/null_sink.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lockgate {

namespace {

// Types of their own, so that `isinstance` tells the sinks apart in Python.
struct PyHttpSink : PySink {};
struct PyCallbackSink : PySink {};
struct PyNullSink : PySink {};

void init_http(PyHttpSink* self, std::string host, std::int64_t port, std::string database, std::string table,
               std::string user, std::string password, double timeout, const nb::dict& settings, bool deduplicate,
               std::string path) {
  if (port < 1 || port > 65535)
    throw std::invalid_argument("port is " + std::to_string(port) + ", expected 1 to 65535");
  clickhouse::ClientSettings client;
  client.host = std::move(host);
  client.port = static_cast<std::uint16_t>(port);
  client.database = std::move(database);
  client.table = std::move(table);
  client.user = std::move(user);
  client.password = std::move(password);
  client.timeout = timeout;
  client.deduplicate = deduplicate;
  client.path = std::move(path);
  for (const auto& [key, value] : settings) {
    client.settings.emplace_back(nb::cast<std::string>(nb::str(key)), nb::cast<std::string>(nb::str(value)));
  }
  new (self) PyHttpSink;
  self->sink = std::make_shared<HttpSink>(std::move(client));
}

void init_callback(PyCallbackSink* self, const nb::object& callback, std::string name, const nb::tuple& fatal) {
  if (PyCallable_Check(callback.ptr()) == 0) throw nb::type_error("callback is not callable");
  for (const nb::handle each : fatal) {
    if (PyExceptionClass_Check(each.ptr()) == 0)
      throw nb::type_error("fatal holds something that is not an exception type");
  }
  new (self) PyCallbackSink;
  self->sink = std::make_shared<CallbackSink>(callback.ptr(), std::move(name), fatal.ptr());
}

}  // namespace

void bind_sinks(nb::module_& module) {
  nb::class_<PySink>(module, "Sink")
      .def_prop_ro("target", [](const PySink& self) { return self.sink->target(); })
      .def("__repr__", [](const PySink& self) { return "<monitoring sink to " + self.sink->target() + ">"; });
  nb::class_<PyHttpSink, PySink>(module, "HttpSink")
      .def("__init__", &init_http, "host"_a, "port"_a, nb::kw_only(), "database"_a, "table"_a, "user"_a = "default",
           "password"_a = "", "timeout"_a = 30.0, "settings"_a = nb::dict(), "deduplicate"_a = false, "path"_a = "/");
  nb::class_<PyCallbackSink, PySink>(module, "CallbackSink")
      .def("__init__", &init_callback, "callback"_a, nb::kw_only(), "name"_a, "fatal"_a = nb::tuple());
  nb::class_<PyNullSink, PySink>(module, "NullSink").def("__init__", [](PyNullSink* self) {
    new (self) PyNullSink;
    self->sink = std::make_shared<NullSink>();
  });
}

}  // namespace lockgate
