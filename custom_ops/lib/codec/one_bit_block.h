// The scalar definition of the one-bit codecs: what a block becomes.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#pragma once

#include <cstdint>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// The scale of each block in kOneBitFixed.
constexpr uint16_t kScaleOne = 0x3f80;

// The scale of a block from the sum of the magnitudes of its `count` elements.
TF_GC_HOST_DEVICE inline BFloat16 MeanScale(float sum, int count) {
  BFloat16 scale;
  RoundTo(sum / static_cast<float>(count), &scale);
  return scale;
}

// The value that a code stands for.
TF_GC_HOST_DEVICE inline float SignValue(bool plus, float scale) {
  return plus ? scale : -scale;
}

// Encodes a member's elements. Element i is sent as plus if is_plus(p[i]), else
// as minus. Returns the scale that is sent: `scale` if all elements of the
// block are finite, else kScaleNaN. `kWhole`: as IsWhole() says.
template <bool kWhole, typename Team, typename IsPlus>
TF_GC_HOST_DEVICE inline uint16_t EncodeSigns(const Team& team, const float* p,
                                              const float* residual,
                                              BFloat16 scale, IsPlus is_plus,
                                              uint8_t* code, float* kept) {
  constexpr int kElements = Team::kElements;
  const bool finite = kWhole || team.All(AreFinite<kElements>(p));
  const float value = ToFloat(scale);
  for (int i = 0; i < kElements; ++i) {
    const bool plus = is_plus(p[i]);
    code[i] = plus && finite && (kWhole || team.Inside(i));
    kept[i] = finite ? p[i] - SignValue(plus, value) : residual[i];
  }
  return finite ? scale.bits : kScaleNaN;
}

template <typename Team, typename IsPlus>
TF_GC_HOST_DEVICE inline uint16_t EncodeOneBit(const Team& team, const float* p,
                                               const float* residual,
                                               BFloat16 scale, IsPlus is_plus,
                                               uint8_t* code, float* kept) {
  return IsWhole(team, p)
             ? EncodeSigns<true>(team, p, residual, scale, is_plus, code, kept)
             : EncodeSigns<false>(team, p, residual, scale, is_plus, code,
                                  kept);
}

// The values of codes, for SumBlock().
inline auto SignValues(float scale) {
  return [=](uint8_t code) { return SignValue(code, scale); };
}

TF_GC_HOST_DEVICE inline bool IsNaNScale(uint16_t scale) {
  return (scale & 0x7fff) > 0x7f80;
}

// ---- The codecs -------------------------------------------------------------
//
// The functions are the same as in two_bit_block.h.

struct OneBitFixed {
  static constexpr Codec kCodec = Codec::kOneBitFixed;

  template <typename Team>
  TF_GC_HOST_DEVICE static void Encode(const Team& team, const float* p,
                                       const float* residual, float threshold,
                                       uint8_t* code, float* kept,
                                       uint16_t* scale) {
    *scale = EncodeOneBit(
        team, p, residual, BFloat16{kScaleOne},
        [=](float element) { return element > threshold; }, code, kept);
  }

  static auto ValuesOf(float scale) { return SignValues(scale); }

  TF_GC_HOST_DEVICE static void CountBlock(const uint8_t* const* codes,
                                           const uint16_t* const* scales,
                                           int64_t replicas, int64_t block,
                                           int bits, uint8_t* counts) {
    constexpr int kFields = kCodesPerByte<1>;
    constexpr int64_t kBytes = CodeBytes(kCodec);
    bool marked = false;
    for (int64_t r = 0; r < replicas; ++r) {
      marked |= IsNaNScale(scales[r][block]);
    }
    for (int64_t i = block * kBytes; i < (block + 1) * kBytes; ++i) {
      int plus[kFields] = {};
      for (int64_t r = 0; r < replicas; ++r) {
        for (int j = 0; j < kFields; ++j) {
          plus[j] += codes[r][i] >> CodeShift<1>(j) & 1;
        }
      }
      uint16_t count[kFields];
      for (int j = 0; j < kFields; ++j) {
        count[j] = CountOf(2 * plus[j], replicas, marked, bits);
      }
      StoreCounts<kFields>(count, i, bits, counts);
    }
  }
};

// The scale of EF-SignSGD (Karimireddy et al. 2019), for each block.
struct OneBitAuto {
  static constexpr Codec kCodec = Codec::kOneBitAuto;

  template <typename Team>
  TF_GC_HOST_DEVICE static void Encode(const Team& team, const float* p,
                                       const float* residual, float,
                                       uint8_t* code, float* kept,
                                       uint16_t* scale) {
    float magnitudes[Team::kElements];
    for (int i = 0; i < Team::kElements; ++i) magnitudes[i] = Abs(p[i]);
    const BFloat16 mean = MeanScale(team.Sum(magnitudes), team.size);
    *scale = EncodeOneBit(
        team, p, residual, mean, [](float element) { return element >= 0; },
        code, kept);
  }

  static auto ValuesOf(float scale) { return SignValues(scale); }
};

}  // namespace tf_gc
