// The scalar definition of the codecs with several levels: what an element and
// a block become. A level is a part of the block's scale.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#pragma once

#include <array>
#include <cstdint>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// The smallest scale that is sent: no level, and no half of one, is subnormal.
constexpr float kMinLevelsScale = 0x1p-118f;

// The levels of a codec (docs/design.md). `kMagnitudeBits` of a code
// say which one is sent.
template <int kMagnitudeBits>
struct Levels {
  static_assert(kMagnitudeBits == 2 || kMagnitudeBits == 3);
  static constexpr int kCount = (1 << kMagnitudeBits) - 1;
  static constexpr uint8_t kMinus = 1 << kMagnitudeBits;
  static constexpr uint8_t kNotFinite = kMinus;  // minus zero

  // Level number `number`, from 0 (zero) to kCount, of a block with the
  // scale 1. The products with a bfloat16, and the sums of two of them, are
  // exact.
  TF_GC_HOST_DEVICE static constexpr float Unit(int number) {
    constexpr float kUnits[2][8] = {
        {0.0f, 0.15625f, 0.5f, 1.0f},
        {0.0f, 0.03125f, 0.125f, 0.25f, 0.375f, 0.5f, 0.75f, 1.0f},
    };
    return kUnits[kMagnitudeBits - 2][number];
  }
  // The least magnitude that is sent as this level, from 1 on, with the scale
  // 1: half way from the one below.
  TF_GC_HOST_DEVICE static constexpr float Least(int number) {
    return 0.5f * (Unit(number) + Unit(number - 1));
  }
  // The scale of a block is this part of its largest magnitude. The highest of
  // three levels is the largest magnitude itself, so that nothing of it waits.
  // The highest of seven is as far below it as the two highest levels are from
  // the middle between them.
  TF_GC_HOST_DEVICE static constexpr float ScaleFactor() {
    return kMagnitudeBits == 2 ? 1.0f : 8.0f / 9.0f;
  }
};

// The scale of a block whose largest magnitude is `largest`; 0 if it sends
// nothing.
template <int kMagnitudeBits>
TF_GC_HOST_DEVICE inline BFloat16 LevelsScale(float largest) {
  const float scale = Levels<kMagnitudeBits>::ScaleFactor() * largest;
  BFloat16 rounded;
  RoundTo(scale < kMinLevelsScale ? 0.0f : scale, &rounded);
  return rounded;
}

// The factor of Least(). No finite magnitude reaches infinity: nothing is sent
// with the scale 0.
TF_GC_HOST_DEVICE inline float LevelsLimit(BFloat16 scale) {
  return scale.bits == 0 ? BitCast<float>(0x7f800000u) : ToFloat(scale);
}

// The value that a code stands for.
template <int kMagnitudeBits>
TF_GC_HOST_DEVICE inline float LevelValue(int code, float scale) {
  using L = Levels<kMagnitudeBits>;
  const int number = code & L::kCount;
  float unit = 0;
  for (int i = 1; i <= L::kCount; ++i) {
    unit = number >= i ? L::Unit(i) : unit;
  }
  const uint32_t level = BitCast<uint32_t>(scale * unit);
  const uint32_t sign = static_cast<uint32_t>(code >> kMagnitudeBits & 1) << 31;
  const uint32_t sent = MaskOf(number != 0);
  const uint32_t not_finite = MaskOf(code == L::kNotFinite);
  return BitCast<float>(((level ^ sign) & sent) | (kNaNBits & not_finite));
}

// Encodes elements; `kFinite`: they are known to be finite. `limit` is
// LevelsLimit(). There are no branches, as in the two-bit codecs, and the inner
// loops are over elements, which a compiler for any processor makes vectors of.
template <int kMagnitudeBits, bool kFinite, int kElements>
TF_GC_HOST_DEVICE inline void EncodeLevels(const float* p,
                                           const float* residual, float limit,
                                           float scale, uint8_t* code,
                                           float* kept) {
  using L = Levels<kMagnitudeBits>;
  uint32_t number[kElements] = {};
  float unit[kElements] = {};  // of the level; its summands are exact
  for (int i = 1; i <= L::kCount; ++i) {
    const float least = L::Least(i) * limit;
    const uint32_t more = BitCast<uint32_t>(L::Unit(i) - L::Unit(i - 1));
    for (int j = 0; j < kElements; ++j) {
      const uint32_t reached = MaskOf(Abs(p[j]) >= least);
      number[j] -= reached;
      unit[j] += BitCast<float>(reached & more);
    }
  }
  for (int j = 0; j < kElements; ++j) {
    const uint32_t bits = BitCast<uint32_t>(p[j]);
    const uint32_t sent = MaskOf(number[j] != 0);
    const uint32_t level =
        BitCast<uint32_t>(scale * unit[j]) | (bits & 1u << 31);
    const float rest = p[j] - BitCast<float>(level & sent);
    const uint32_t minus = bits >> 31 << kMagnitudeBits & sent;
    const bool finite = kFinite || IsFinite(p[j]);
    code[j] = static_cast<uint8_t>(finite ? number[j] | minus : L::kNotFinite);
    kept[j] = finite ? rest : residual[j];
  }
}

template <Codec kTheCodec, int kMagnitudeBits>
struct LevelsCodec : Scaled<LevelsCodec<kTheCodec, kMagnitudeBits>> {
  static constexpr Codec kCodec = kTheCodec;
  static_assert(CodeBits(kTheCodec) == kMagnitudeBits + 1);

  template <bool kWhole, typename Team>
  TF_GC_HOST_DEVICE static uint16_t EncodeScaled(const Team& team,
                                                 const float* p,
                                                 const float* residual,
                                                 uint8_t* code, float* kept) {
    const BFloat16 scale =
        LevelsScale<kMagnitudeBits>(LargestFinite<kWhole>(team, p));
    const float value = ToFloat(scale);
    const float limit = LevelsLimit(scale);
    EncodeLevels<kMagnitudeBits, kWhole, Team::kElements>(p, residual, limit,
                                                          value, code, kept);
    return scale.bits;
  }

  static auto ValuesOf(float scale) {
    std::array<float, 1 << CodeBits(kCodec)> values;
    for (int i = 0; i < 1 << CodeBits(kCodec); ++i) {
      values[i] = LevelValue<kMagnitudeBits>(i, scale);
    }
    return [=](uint8_t code) { return values[code]; };
  }
};

using ThreeBit = LevelsCodec<Codec::kThreeBit, 2>;
using FourBit = LevelsCodec<Codec::kFourBit, 3>;

}  // namespace tf_gc
