// The scalar definition of the two-bit codecs: what an element and a block
// become. The SIMD bodies and the CUDA kernels give the same bits; the order of
// the additions in a block is chosen so that they can.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#ifndef TF_GC_CUSTOM_OPS_LIB_TWO_BIT_BLOCK_H_
#define TF_GC_CUSTOM_OPS_LIB_TWO_BIT_BLOCK_H_

#include <cfloat>
#include <cstdint>
#include <cstring>

#include "custom_ops/lib/two_bit.h"
#include "custom_ops/lib/wire.h"

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "the codecs need strict float32 arithmetic: no -ffast-math, no x87"
#endif

namespace tf_gc {

// Below kMaxMagnitude the sum of a block cannot overflow.
constexpr float kMaxMagnitude = 0x1p120f;
// The least threshold of a block in kTwoBitAuto: a block of zeros sends zeros,
// and what is sent is not subnormal.
constexpr float kMinMagnitude = 0x1p-126f;
// The threshold of a block is this part of its mean magnitude.
constexpr float kMeanFactor = 0.7f;
// The one NaN that is ever written: processors differ in the payloads and signs
// of the NaN that their arithmetic makes.
constexpr uint32_t kNaNBits = 0x7fc00000;

template <typename To, typename From>
TF_GC_HOST_DEVICE inline To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

TF_GC_HOST_DEVICE inline float Abs(float x) {
  return BitCast<float>(BitCast<uint32_t>(x) & 0x7fffffffu);
}

// ---- The float types -------------------------------------------------------

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

// ---- Codes -----------------------------------------------------------------

// Where the code of element i lies in its byte.
TF_GC_HOST_DEVICE constexpr int CodeShift(int64_t i) {
  return static_cast<int>((kCodesPerByte - 1 - i % kCodesPerByte) *
                          kBitsPerCode);
}

// ---- Elements --------------------------------------------------------------

// What is sent of an element, and what is kept.
struct Element {
  uint8_t code;
  float residual;
};

TF_GC_HOST_DEVICE inline bool IsFinite(float p) {
  return Abs(p) < kMaxMagnitude;
}

// All bits, or none.
TF_GC_HOST_DEVICE inline uint32_t MaskOf(bool condition) {
  return 0u - static_cast<uint32_t>(condition);
}

// These are bit operations because what is sent cannot be predicted, and so
// that compilers vectorize them. Subtracting +0 changes no value.
TF_GC_HOST_DEVICE inline Element EncodeElement(float p, float residual,
                                               bool plus, bool minus,
                                               float magnitude) {
  const uint32_t finite = MaskOf(IsFinite(p));
  const uint32_t sent = MaskOf(plus | minus);
  const uint32_t sign = MaskOf(minus) & 0x80000000u;
  const float rest =
      p - BitCast<float>((BitCast<uint32_t>(magnitude) ^ sign) & sent);
  const uint32_t code = (sent & kCodeMinus) | (MaskOf(plus) & kCodePlus);
  return {static_cast<uint8_t>((code & finite) | (kCodeNotFinite & ~finite)),
          BitCast<float>((BitCast<uint32_t>(rest) & finite) |
                         (BitCast<uint32_t>(residual) & ~finite))};
}

TF_GC_HOST_DEVICE inline Element EncodeFixedElement(float p, float residual,
                                                    float threshold) {
  return EncodeElement(p, residual, p >= threshold, p <= -threshold, threshold);
}

TF_GC_HOST_DEVICE inline Element EncodeAutoElement(float p, float residual,
                                                   float threshold,
                                                   float scale) {
  return EncodeElement(p, residual, p >= threshold, p <= -threshold, scale);
}

// The value that a code stands for.
TF_GC_HOST_DEVICE inline float CodeValue(uint8_t code, float scale) {
  const uint32_t high = MaskOf(code >> 1 & 1);
  const uint32_t low = MaskOf(code & 1);
  const uint32_t value = BitCast<uint32_t>(scale) ^ (~low & 0x80000000u);
  return BitCast<float>((high & value) | (~high & low & kNaNBits));
}

// ---- Blocks ----------------------------------------------------------------

// The threshold of a block in kTwoBitAuto from the sum of the magnitudes of its
// `count` finite elements.
TF_GC_HOST_DEVICE inline float AutoThreshold(float sum, int count) {
  if (count == 0) return kMinMagnitude;
  const float threshold = kMeanFactor * sum / static_cast<float>(count);
  return threshold > kMinMagnitude ? threshold : kMinMagnitude;
}

// The scale of a block from the sum of the magnitudes of its `count` elements
// that are sent.
TF_GC_HOST_DEVICE inline BFloat16 AutoScale(float sum, int count) {
  BFloat16 scale;
  RoundTo(count == 0 ? 0.0f : sum / static_cast<float>(count), &scale);
  return scale;
}

// The sum of kBlockSize values, which it overwrites: a pairwise tree over the
// bits of the index, in the order 4, 5, 6, 3, 2, 1, 0. In registers of 16 lanes
// that is the registers first, the lanes of the last one after them.
TF_GC_HOST_DEVICE inline float TreeSum(float* values) {
  constexpr int kLanes = 16;
  for (int step = kLanes; step < kBlockSize; step *= 2) {
    for (int row = 0; row < kBlockSize; row += 2 * step) {
      for (int lane = 0; lane < kLanes; ++lane) {
        values[row + lane] += values[row + lane + step];
      }
    }
  }
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int lane = 0; lane < step; ++lane) values[lane] += values[lane + step];
  }
  return values[0];
}

// The functions below take the first `size` <= kBlockSize elements of a block.

// `addend` is null, or what is added after the residual.
template <typename T>
TF_GC_HOST_DEVICE inline void LoadBlock(const T* gradient,
                                        const float* residual,
                                        const float* addend, int size,
                                        float* p) {
  for (int i = 0; i < size; ++i) p[i] = ToFloat(gradient[i]) + residual[i];
  if (addend != nullptr) {
    for (int i = 0; i < size; ++i) p[i] += addend[i];
  }
  for (int i = size; i < kBlockSize; ++i) p[i] = 0;
}

// `encode(p, residual)` gives an Element.
template <typename Encode>
TF_GC_HOST_DEVICE inline void EncodeBlock(const float* p,
                                          const float* residual_in,
                                          float* residual_out, int size,
                                          uint8_t* codes, Encode encode) {
  // In arrays of their own, which the compiler knows not to overlap.
  uint8_t code[kBlockSize] = {};
  float kept[kBlockSize];
  for (int i = 0; i < size; ++i) {
    const Element element = encode(p[i], residual_in[i]);
    code[i] = element.code;
    kept[i] = element.residual;
  }
  for (int i = 0; i < size; ++i) residual_out[i] = kept[i];
  for (int i = 0; i < kBlockSize; i += kCodesPerByte) {
    int byte = 0;
    for (int j = 0; j < kCodesPerByte; ++j) byte |= code[i + j] << CodeShift(j);
    codes[i / kCodesPerByte] = static_cast<uint8_t>(byte);
  }
}

template <typename T>
TF_GC_HOST_DEVICE inline void EncodeFixedBlock(const T* gradient,
                                               const float* residual_in,
                                               float* residual_out, int size,
                                               float threshold,
                                               uint8_t* codes) {
  float p[kBlockSize];
  LoadBlock(gradient, residual_in, nullptr, size, p);
  EncodeBlock(p, residual_in, residual_out, size, codes,
              [=](float value, float residual) {
                return EncodeFixedElement(value, residual, threshold);
              });
}

template <typename T>
TF_GC_HOST_DEVICE inline void EncodeAutoBlock(const T* gradient,
                                              const float* residual_in,
                                              const float* addend,
                                              float* residual_out, int size,
                                              uint8_t* codes, uint16_t* scale) {
  float p[kBlockSize];
  float magnitudes[kBlockSize];
  LoadBlock(gradient, residual_in, addend, size, p);
  int finite = size - kBlockSize;  // The zeros after the end do not count.
  for (int i = 0; i < kBlockSize; ++i) {
    magnitudes[i] = IsFinite(p[i]) ? Abs(p[i]) : 0.0f;
    finite += IsFinite(p[i]);
  }
  const float threshold = AutoThreshold(TreeSum(magnitudes), finite);

  int sent = 0;
  for (int i = 0; i < kBlockSize; ++i) {
    const bool send = IsFinite(p[i]) && Abs(p[i]) >= threshold;
    magnitudes[i] = send ? Abs(p[i]) : 0.0f;
    sent += send;
  }
  const BFloat16 rounded = AutoScale(TreeSum(magnitudes), sent);
  const float value = ToFloat(rounded);
  *scale = rounded.bits;

  EncodeBlock(p, residual_in, residual_out, size, codes,
              [=](float element, float residual) {
                return EncodeAutoElement(element, residual, threshold, value);
              });
}

// Adds the values of a block's codes to its sums, or makes them the sums.
TF_GC_HOST_DEVICE inline void AddBlock(const uint8_t* codes, float scale,
                                       bool first, float* sums) {
  uint8_t code[kBlockSize];
  for (int byte = 0; byte < kBlockCodeBytes; ++byte) {
    for (int j = 0; j < kCodesPerByte; ++j) {
      code[byte * kCodesPerByte + j] = codes[byte] >> CodeShift(j) & 0b11;
    }
  }
  for (int i = 0; i < kBlockSize; ++i) {
    const float value = CodeValue(code[i], scale);
    sums[i] = first ? value : sums[i] + value;
  }
}

// The sums of a block over the messages, whose codes[r] and scales[r] point at
// their first block. kTwoBitFixed counts in float32, exact up to 2^24 messages.
TF_GC_HOST_DEVICE inline void SumFixedBlock(const uint8_t* const* codes,
                                            int64_t replicas, int64_t block,
                                            float threshold, float* sums) {
  for (int64_t r = 0; r < replicas; ++r) {
    AddBlock(codes[r] + block * kBlockCodeBytes, 1.0f, r == 0, sums);
  }
  for (int i = 0; i < kBlockSize; ++i) sums[i] *= threshold;
}

TF_GC_HOST_DEVICE inline void SumAutoBlock(const uint8_t* const* codes,
                                           const uint16_t* const* scales,
                                           int64_t replicas, int64_t block,
                                           float* sums) {
  for (int64_t r = 0; r < replicas; ++r) {
    AddBlock(codes[r] + block * kBlockCodeBytes,
             ToFloat(BFloat16{scales[r][block]}), r == 0, sums);
  }
}

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_TWO_BIT_BLOCK_H_
