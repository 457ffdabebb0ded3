// The part of DLPack's C exchange API that taps use. The layout belongs to that
// standard (version 1); other members of the same structs are only spaced out.
#pragma once

#include <cstdint>

namespace lockgate::dlpack {

inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::int32_t kCpu = 1;

struct Tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;  // null: C order
  std::uint64_t byte_offset;
};
static_assert(sizeof(Tensor) == 48);

struct Exchange {
  std::uint32_t major;
  std::uint32_t minor;
  void* older;
  void* unused[3];
  // 0: `out` describes the object, whose memory it borrows.
  int (*describe)(void* object, Tensor* out);
  void* unused_stream;
};

}  // namespace lockgate::dlpack
