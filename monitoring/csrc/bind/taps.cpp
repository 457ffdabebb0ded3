#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind/dlpack.h"
#include "bind/narrow.h"
#include "bind/push.h"
#include "bind/py_ring.h"

namespace nb = nanobind;

namespace lockgate {

namespace {

constexpr int kNotMine = -1;
constexpr int kMostCalls = 65535;

// A forward pass that a thread runs for one `Taps`.
struct Pass {
  std::uint64_t taps;
  std::shared_ptr<const Plan> plan;
  std::int64_t batch;
  std::vector<int> calls;
};

// Seldom more than one entry: as many as watches see the same forward pass.
std::vector<Pass>& passes() {
  thread_local std::vector<Pass> of_this_thread;
  return of_this_thread;
}

// Hooks of plain host tensors without a Python frame: a tensor's description
// comes from DLPack's exchange functions in one C call. Whatever is not plain
// is refused with kNotMine, and the caller takes its own, slower way.
class Taps {
 public:
  Taps(const nb::object& ring, const nb::capsule& exchange, const nb::object& tensor_type, std::uint32_t count)
      : object_(ring),
        ring_(nb::cast<PyRing&>(ring).ring()),
        type_(tensor_type),
        bound_(count),
        number_(next_number_++) {
    exchange_ = static_cast<const dlpack::Exchange*>(exchange.data("dlpack_exchange_api"));
    if (exchange_ == nullptr || exchange_->major != dlpack::kMajor || exchange_->describe == nullptr) {
      throw std::invalid_argument("exchange is not a DLPack exchange API of version 1 that describes tensors");
    }
    if (PyType_Check(tensor_type.ptr()) == 0) throw nb::type_error("tensor_type is not a type");
  }

  void enter(std::uint64_t plan, std::int64_t batch) {
    Pass* pass = find();
    if (pass == nullptr) {
      passes().push_back({number_, nullptr, 0, {}});
      pass = &passes().back();
    }
    pass->plan = ring_.find_plan(plan);
    pass->batch = batch;
    pass->calls.assign(bound_.size(), 0);
  }

  void leave() {
    std::erase_if(passes(), [this](const Pass& pass) { return pass.taps == number_; });
  }

  void bind(std::uint32_t index, std::uint32_t slot, std::uint32_t token_dim, std::uint32_t code, std::uint32_t bits) {
    const std::uint32_t item = ring_.item_bytes(slot);
    if (bits != 8 * item) {
      throw std::invalid_argument("slot " + std::to_string(slot) + " has elements of " + std::to_string(item) +
                                  " bytes, not of " + std::to_string(bits) + " bits");
    }
    at(index) = {slot, token_dim, narrow<std::uint8_t>(code, "dtype_code"), narrow<std::uint8_t>(bits, "dtype_bits"),
                 true};
  }

  std::int64_t take(std::uint32_t index, nb::handle object) {
    Pass* pass = find();
    if (pass == nullptr || index >= bound_.size() || !bound_[index].bound) return kNotMine;
    if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != type_.ptr()) return kNotMine;
    const Bound& bound = bound_[index];
    if (pass->calls[index] >= kMostCalls) return kNotMine;
    dlpack::Tensor tensor{};
    if (exchange_->describe(object.ptr(), &tensor) != 0) {
      PyErr_Clear();
      return kNotMine;
    }
    Extents shape;
    std::uint64_t nbytes = bound.bits / 8;
    if (!read(tensor, bound, *pass, shape, nbytes)) return kNotMine;
    const Rows rows{bound.slot, static_cast<std::uint16_t>(pass->calls[index]), bound.token_dim, 0, 0};
    try {
      // The plan is held: while the GIL is away, nobody but this thread changes this thread's pass.
      const std::shared_ptr<const Plan> plan = pass->plan;
      const std::uint64_t in = push_pieces(ring_, rows, *plan, shape,
                                           static_cast<const std::byte*>(tensor.data) + tensor.byte_offset, nbytes);
      if (Pass* same = find()) ++same->calls[index];
      return static_cast<std::int64_t>(in);
    } catch (const std::invalid_argument&) {
      return kNotMine;  // the slow way meets the same problem, and reports it
    }
  }

  int call(std::uint32_t index) {
    Pass* pass = find();
    if (pass == nullptr || index >= bound_.size() || pass->calls[index] >= kMostCalls) return kNotMine;
    return pass->calls[index]++;
  }

 private:
  struct Bound {
    std::uint32_t slot = 0;
    std::uint32_t token_dim = 0;
    std::uint8_t code = 0;
    std::uint8_t bits = 0;
    bool bound = false;
  };

  Pass* find() const {
    for (Pass& pass : passes()) {
      if (pass.taps == number_) return &pass;
    }
    return nullptr;
  }

  Bound& at(std::uint32_t index) {
    if (index >= bound_.size()) {
      throw std::invalid_argument("tap " + std::to_string(index) + " of " + std::to_string(bound_.size()));
    }
    return bound_[index];
  }

  // Whether the tensor is plain; its extents and its size then.
  static bool read(const dlpack::Tensor& tensor, const Bound& bound, const Pass& pass, Extents& shape,
                   std::uint64_t& nbytes) {
    const bool plain = tensor.device_type == dlpack::kCpu && tensor.code == bound.code && tensor.bits == bound.bits &&
                       tensor.lanes == 1 && tensor.ndim >= 1 && tensor.ndim <= static_cast<std::int32_t>(kMaxDims) &&
                       tensor.shape[0] == pass.batch;
    if (!plain) return false;
    shape.dims = static_cast<std::uint32_t>(tensor.ndim);
    std::int64_t stride = 1;
    for (std::int32_t dim = tensor.ndim - 1; dim >= 0; --dim) {
      const std::int64_t extent = tensor.shape[dim];
      if (extent < 0 || extent > UINT32_MAX) return false;
      if (tensor.strides != nullptr && extent != 1 && tensor.strides[dim] != stride) return false;
      stride *= extent;
      shape.of[static_cast<std::size_t>(dim)] = static_cast<std::uint32_t>(extent);
    }
    nbytes *= static_cast<std::uint64_t>(stride);
    return true;
  }

  inline static std::atomic<std::uint64_t> next_number_{0};

  nb::object object_;
  Ring& ring_;
  nb::object type_;
  const dlpack::Exchange* exchange_ = nullptr;
  std::vector<Bound> bound_;
  const std::uint64_t number_;
};

}  // namespace

void bind_taps(nb::module_& module) {
  nb::class_<Taps>(module, "Taps")
      .def(nb::init<nb::object, nb::capsule, nb::object, std::uint32_t>())
      .def("enter", &Taps::enter)
      .def("leave", &Taps::leave)
      .def("bind", &Taps::bind)
      .def("take", &Taps::take, nb::arg(), nb::arg().none())
      .def("call", &Taps::call);
}

}  // namespace lockgate
