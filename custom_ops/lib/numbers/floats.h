// The float types of gradients: float32, and the 16-bit ones as their bits, so
// that the library needs no header that defines them.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "custom_ops/lib/numbers/host_device.h"

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "the codecs need strict float32 arithmetic: no -ffast-math, no x87"
#endif

namespace tf_gc {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// The types as numbers, for callers that know them at run time only. kInt8 is
// of residuals, in blocks with scales (codec/eight_bit_block.h).
enum class DType : int { kFloat = 0, kHalf = 1, kBFloat16 = 2, kInt8 = 3 };

TF_GC_HOST_DEVICE constexpr int64_t BytesOf(DType dtype) {
  return dtype == DType::kFloat ? 4 : dtype == DType::kInt8 ? 1 : 2;
}

template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, Half>) return DType::kHalf;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBFloat16;
  static_assert(std::is_same_v<T, float> || sizeof(T) == 2, "unknown type");
  return DType::kFloat;
}

// Returns call(T*) with the type of gradients that `dtype` stands for,
// `unknown` if it stands for none.
template <typename Call>
int ForType(DType dtype, int unknown, Call call) {
  switch (dtype) {
    case DType::kFloat:
      return call(static_cast<float*>(nullptr));
    case DType::kHalf:
      return call(static_cast<Half*>(nullptr));
    case DType::kBFloat16:
      return call(static_cast<BFloat16*>(nullptr));
    case DType::kInt8:
      break;
  }
  return unknown;
}

// The only NaN that the library writes. Processors differ in the payload and
// the sign of a NaN that their arithmetic makes.
constexpr uint32_t kNaNBits = 0x7fc00000;

template <typename To, typename From>
TF_GC_HOST_DEVICE inline To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

TF_GC_HOST_DEVICE inline float Abs(float x) { return std::fabs(x); }

TF_GC_HOST_DEVICE inline float ToFloat(float x) { return x; }

TF_GC_HOST_DEVICE inline float ToFloat(BFloat16 x) {
  return BitCast<float>(static_cast<uint32_t>(x.bits) << 16);
}

TF_GC_HOST_DEVICE inline float ToFloat(Half x) {
  const uint32_t magnitude = x.bits & 0x7fffu;
  uint32_t bits;
  if (magnitude >= 0x7c00) {  // infinity or NaN
    bits = 0x7f800000u | magnitude << 13;
  } else if (magnitude >= 0x0400) {
    bits = (magnitude << 13) + (112u << 23);
  } else {  // subnormal: a multiple of 2^-24
    bits = BitCast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  }
  return BitCast<float>(bits | (x.bits & 0x8000u) << 16);
}

// Rounds to nearest even; overflow goes to infinity; NaN becomes the one NaN.
TF_GC_HOST_DEVICE inline void RoundTo(float x, float* result) {
  *result = x == x ? x : BitCast<float>(kNaNBits);
}

TF_GC_HOST_DEVICE inline void RoundTo(float x, BFloat16* result) {
  const uint32_t bits = x == x ? BitCast<uint32_t>(x) : kNaNBits;
  result->bits =
      static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

TF_GC_HOST_DEVICE inline void RoundTo(float x, Half* result) {
  const uint32_t bits = BitCast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00;
  } else if (magnitude >= 0x47800000u) {  // 2^16
    half = sign | 0x7c00;
  } else if (magnitude >= 0x38800000u) {  // 2^-14
    const uint32_t rounded = magnitude + 0x0fffu + (magnitude >> 13 & 1u);
    half = sign | (rounded - (112u << 23)) >> 13;
  } else {
    // In [0.5, 1) floats are the multiples of 2^-24, as subnormal halves are.
    const float shifted = BitCast<float>(magnitude) + 0.5f;
    half = sign | (BitCast<uint32_t>(shifted) - BitCast<uint32_t>(0.5f));
  }
  result->bits = static_cast<uint16_t>(half);
}

}  // namespace tf_gc
