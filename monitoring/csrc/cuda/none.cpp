// The CPU build's answers.
#include <stdexcept>

#include "cuda/cuda.h"

namespace lockgate::cuda {

int device_count() noexcept { return 0; }

std::string status() { return "built without CUDA; build with: LOCKGATE_NATIVE=cuda"; }

std::unique_ptr<Payload> make_payload(int, std::uint64_t) {
  throw std::runtime_error("a CUDA ring was asked for: " + status());
}

}  // namespace lockgate::cuda
