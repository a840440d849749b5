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

// The scale of a block whose largest magnitude is `largest`; 0 if it sends
// nothing. A bfloat16 is off by less than 1/256. So the largest is less than
// 127.5 scales, which are sent as 127, and no element is off by more than half
// a scale, 1/253 of the largest.
TF_GC_HOST_DEVICE inline BFloat16 EightBitScale(float largest) {
  const float scale = largest / 127.0f;
  BFloat16 rounded;
  RoundTo(scale < kMinEightBitScale ? 0.0f : scale, &rounded);
  return rounded;
}

// The factor that turns elements into multiples of the scale.
TF_GC_HOST_DEVICE inline float EightBitFactor(BFloat16 scale) {
  return scale.bits == 0 ? 0.0f : 1.0f / ToFloat(scale);
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
    const float factor = EightBitFactor(scale);
    const float value = ToFloat(scale);
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

}  // namespace tf_gc
