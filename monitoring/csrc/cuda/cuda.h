// What the rest of the library knows of CUDA. In a CPU build the same functions
// say that there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ring/payload.h"

namespace lockgate::cuda {

// 0 without a driver or a device. Never throws.
int device_count() noexcept;
// One sentence for a person.
std::string status();
// Payload memory on a device. Throws std::runtime_error that names what is missing.
std::unique_ptr<Payload> make_payload(int device, std::uint64_t capacity_bytes);

}  // namespace lockgate::cuda
