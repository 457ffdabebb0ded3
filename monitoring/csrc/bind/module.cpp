// The extension module `monitoring._native`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bind/py_ring.h"
#include "clickhouse/row.h"
#include "cuda/cuda.h"
#include "ring/dtype.h"
#include "sink/registry.h"

namespace nb = nanobind;

namespace lockgate {

namespace {

constexpr int kAbi = 1;
constexpr double kCloseAtExit = 10.0;  // seconds

nb::str text(std::string_view value) { return nb::str(value.data(), value.size()); }

nb::dict features() {
  nb::dict out;
  out["mode"] = LOCKGATE_CUDA ? "cuda" : "cpu";
  out["sanitizer"] = LOCKGATE_SANITIZER;
  nb::list archs;
  std::string number;
  for (const char c : LOCKGATE_CUDA != 0 ? std::string(LOCKGATE_CUDA_ARCHS) + "," : std::string()) {
    if (c != ',') {
      number.push_back(c);
    } else if (!number.empty()) {
      archs.append(std::stoi(number));
      number.clear();
    }
  }
  out["cuda_archs"] = archs;
  out["version"] = LOCKGATE_VERSION;
  out["abi"] = kAbi;
  out["compiler"] = LOCKGATE_COMPILER;
  out["hook_table_version"] = LOCKGATE_HOOK_TABLE_VERSION;
  out["hook_table_digest"] = LOCKGATE_HOOK_TABLE_DIGEST;
  return out;
}

void check_hook_table(std::int64_t version, const std::string& digest) {
  if (version == LOCKGATE_HOOK_TABLE_VERSION && digest == LOCKGATE_HOOK_TABLE_DIGEST) return;
  const std::string message = "the native library was built for hook table " +
                              std::to_string(LOCKGATE_HOOK_TABLE_VERSION) + " (" + LOCKGATE_HOOK_TABLE_DIGEST +
                              "), the package has table " + std::to_string(version) + " (" + digest +
                              "); build it again: invoke build-native";
  PyErr_SetString(PyExc_ImportError, message.c_str());
  throw nb::python_error();
}

}  // namespace

NB_MODULE(_native, module) {
  module.attr("ABI") = kAbi;
  nb::list columns;
  for (const auto& [name, type] : clickhouse::kColumns) columns.append(nb::make_tuple(text(name), text(type)));
  module.attr("COLUMNS") = nb::tuple(columns);
  nb::dict items;
  for (const auto& [name, bytes] : kItemBytes) items[text(name)] = bytes;
  module.attr("ITEM_BYTES") = items;
  module.def("features", &features);
  module.def("check_hook_table", &check_hook_table);
  module.def("cuda_device_count", &cuda::device_count);
  module.def("cuda_status", &cuda::status);
  bind_sinks(module);
  bind_ring(module);
  bind_taps(module);
  module.def("_close_all", [] {
    const nb::gil_scoped_release unlocked;
    Registry::instance().close_all(kCloseAtExit);
  });
  nb::module_::import_("atexit").attr("register")(module.attr("_close_all"));
}

}  // namespace lockgate
