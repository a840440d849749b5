// The scalar definition of the codec of eight bits: what a block becomes. Each
// element is sent as the nearest whole number of the block's scale.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#pragma once

#include <cstdint>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// The smallest scale that is sent: none is subnormal.
constexpr float kMinEightBitScale = 0x1p-126f;

// A sum with it has the nearest whole number, the even one of two, in its low
// bits, in two's complement.
constexpr float kToWhole = 0x1.8p23f;

// The scale of a block whose largest magnitude is `largest`, so that this is
// 127 scales; 0 if the block becomes zeros.
TF_GC_HOST_DEVICE inline float WholeScale(float largest) {
  const float scale = largest / 127.0f;
  return scale < kMinEightBitScale ? 0.0f : scale;
}

// The same as it is sent. A bfloat16 is off by less than 1/256. So the largest
// is less than 127.5 scales, which are sent as 127, and no element is off by
// more than half a scale, 1/253 of the largest.
TF_GC_HOST_DEVICE inline BFloat16 EightBitScale(float largest) {
  BFloat16 rounded;
  RoundTo(WholeScale(largest), &rounded);
  return rounded;
}

// The factor that turns elements into multiples of the scale.
TF_GC_HOST_DEVICE inline float EightBitFactor(float scale) {
  return scale == 0.0f ? 0.0f : 1.0f / scale;
}

// The value that a code stands for.
TF_GC_HOST_DEVICE inline float EightBitValue(uint8_t code, float scale) {
  return CountValue<8>(CountInField<8>(code), scale);
}

struct EightBit : Scaled<EightBit> {
  static constexpr Codec kCodec = Codec::kEightBit;

  template <bool kWhole, typename Team>
  TF_GC_HOST_DEVICE static uint16_t EncodeScaled(const Team& team,
                                                 const float* p,
                                                 const float* residual,
                                                 uint8_t* code, float* kept) {
    constexpr uint8_t kNotFinite = static_cast<uint8_t>(CountNotFinite(8));
    const BFloat16 scale = EightBitScale(LargestFinite<kWhole>(team, p));
    const float value = ToFloat(scale);
    const float factor = EightBitFactor(value);
    for (int i = 0; i < Team::kElements; ++i) {
      const bool finite = kWhole || IsFinite(p[i]);
      const float shifted = p[i] * factor + kToWhole;
      const float rest = p[i] - (shifted - kToWhole) * value;
      code[i] = finite ? static_cast<uint8_t>(BitCast<uint32_t>(shifted))
                       : kNotFinite;
      kept[i] = finite ? rest : residual[i];
    }
    return scale.bits;
  }

  static auto ValuesOf(float scale) {
    return [=](uint8_t code) { return EightBitValue(code, scale); };
  }
};

// Residuals of a block in DType::kInt8: whole numbers of the scale, each off by
// at most half of it, 1/253 of the largest. After the end of a tensor are
// zeros.
struct EightBitResiduals {
  float scale;
  int8_t whole[kBlockSize];
};
static_assert(sizeof(EightBitResiduals) == 132,
              "as tf_gc/state/stored.py says");
template <>
constexpr DType DTypeOf<EightBitResiduals>() {
  return DType::kInt8;
}

// A number as a whole one of the scale with this factor.
TF_GC_HOST_DEVICE inline int8_t WholeOf(float value, float factor) {
  return static_cast<int8_t>(BitCast<uint32_t>(value * factor + kToWhole));
}

// The bytes of the residuals of `size` elements: of whole blocks, if they are
// not the last of their tensor.
TF_GC_HOST_DEVICE constexpr int64_t ResidualBytes(DType dtype, int64_t size) {
  constexpr int64_t kBlockBytes = sizeof(EightBitResiduals);
  return dtype == DType::kInt8 ? NumBlocks(size) * kBlockBytes
                               : size * BytesOf(dtype);
}

}  // namespace tf_gc
