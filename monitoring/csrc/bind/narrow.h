// Python's integers into the columns' narrower ones.
#pragma once

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockgate {

// A number that does not fit is a mistake, never a smaller number: throws std::invalid_argument.
template <typename To, typename From>
To narrow(From value, const char* name) {
  if (!std::in_range<To>(value)) {
    throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", expected " +
                                std::to_string(std::numeric_limits<To>::min()) + " to " +
                                std::to_string(std::numeric_limits<To>::max()));
  }
  return static_cast<To>(value);
}

}  // namespace lockgate
