// The scalar definition of the two-bit codecs: what an element and a block
// become.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#pragma once

#include <cstdint>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// No scale, and no half of one, is subnormal.
constexpr float kMinMagnitude = 0x1p-126f;
// The scale of a block in kTwoBitAuto is this part of its largest magnitude.
// With the threshold at half of the scale, this is the uniform quantizer of
// [-largest, largest] with three levels: no element is further than a third of
// the largest from what is sent of it.
constexpr float kScaleFactor = 2.0f / 3.0f;

// ---- Elements --------------------------------------------------------------

// The code that is sent of an element, and the residual that is kept.
struct Element {
  uint8_t code;
  float residual;
};

// Sends plus or minus `scale` of an element whose magnitude reaches `threshold`
// > 0. `kFinite`: it is known to be finite.
//
// A branch would be slow, because a processor cannot predict which elements are
// sent. Compilers vectorize these bit operations. Subtracting +0 changes no
// value.
template <bool kFinite>
TF_GC_HOST_DEVICE inline Element EncodeElement(float p, float residual,
                                               float threshold, float scale) {
  static_assert((kCodePlus ^ 1) == kCodeMinus);
  const uint32_t bits = BitCast<uint32_t>(p);
  const uint32_t sent = MaskOf(Abs(p) >= threshold);
  const uint32_t value = BitCast<uint32_t>(scale) ^ (bits & 0x80000000u);
  const float rest = p - BitCast<float>(value & sent);
  const uint32_t code = (kCodePlus ^ bits >> 31) & sent;
  if (kFinite) return {static_cast<uint8_t>(code), rest};
  const uint32_t finite = MaskOf(IsFinite(p));
  return {static_cast<uint8_t>((code & finite) | (kCodeNotFinite & ~finite)),
          BitCast<float>((BitCast<uint32_t>(rest) & finite) |
                         (BitCast<uint32_t>(residual) & ~finite))};
}

// The value that a code stands for.
TF_GC_HOST_DEVICE inline float CodeValue(uint8_t code, float scale) {
  const uint32_t high = MaskOf(code >> 1 & 1);
  const uint32_t low = MaskOf(code & 1);
  const uint32_t value = BitCast<uint32_t>(scale) ^ (~low & 0x80000000u);
  return BitCast<float>((high & value) | (~high & low & kNaNBits));
}

// ---- Blocks ----------------------------------------------------------------

// The scale of a block whose largest magnitude is `largest`; 0 if it sends
// nothing.
TF_GC_HOST_DEVICE inline BFloat16 AutoScale(float largest) {
  const float scale = kScaleFactor * largest;
  BFloat16 rounded;
  RoundTo(scale < 2 * kMinMagnitude ? 0.0f : scale, &rounded);
  return rounded;
}

// The least magnitude that is sent with a scale.
TF_GC_HOST_DEVICE inline float AutoThreshold(BFloat16 scale) {
  return scale.bits == 0 ? kMaxMagnitude : 0.5f * ToFloat(scale);
}

template <int kElements, bool kFinite>
TF_GC_HOST_DEVICE inline void EncodeElements(const float* p,
                                             const float* residual,
                                             float threshold, float scale,
                                             uint8_t* code, float* kept) {
  for (int i = 0; i < kElements; ++i) {
    const Element element =
        EncodeElement<kFinite>(p[i], residual[i], threshold, scale);
    code[i] = element.code;
    kept[i] = element.residual;
  }
}

// The values of codes, for SumBlock().
inline auto TwoBitValues(float scale) {
  return [=](uint8_t code) { return CodeValue(code, scale); };
}

// The low bits of the codes in a word.
template <typename Word>
constexpr Word kLowBits = static_cast<Word>(0x5555555555555555u);

// For each code of a word, in its two bits: 1 plus its value in units of the
// scale, or 1.
template <typename Word>
TF_GC_HOST_DEVICE inline Word ValuesPlusOne(Word codes) {
  const Word high = static_cast<Word>(codes >> 1);
  return static_cast<Word>((high & codes & kLowBits<Word>) << 1 |
                           (~high & kLowBits<Word>));
}

// The low bits of the codes in a word that are kCodeNotFinite; the high bits
// mean nothing.
template <typename Word>
TF_GC_HOST_DEVICE inline Word NotFiniteCodes(Word codes) {
  return static_cast<Word>(codes & ~(codes >> 1));
}

// Counts the four elements of code byte i over `replicas` messages.
TF_GC_HOST_DEVICE inline void CountByte(const uint8_t* const* codes,
                                        int64_t replicas, int64_t i, int bits,
                                        uint8_t* counts) {
  constexpr int kFields = kCodesPerByte<2>;
  uint64_t sums = 0;  // in 16 bits each
  int not_finite = 0;
  for (int64_t r = 0; r < replicas; ++r) {
    not_finite |= NotFiniteCodes(codes[r][i]);
    const uint64_t added = ValuesPlusOne(codes[r][i]);
    sums += (added >> 6 | added << 12 | added << 30 | added << 48) &
            0x0003000300030003u;
  }
  uint16_t count[kFields];
  for (int j = 0; j < kFields; ++j) {
    count[j] = CountOf(static_cast<int>(sums >> 16 * j & 0xffffu), replicas,
                       not_finite >> CodeShift<2>(j) & 1, bits);
  }
  StoreCounts<kFields>(count, i, bits, counts);
}

// ---- The codecs -------------------------------------------------------------
//
// Encode() gives a member's codes, its new residuals and the scale. ValuesOf()
// is what SumBlock() asks for. scalar.cc calls CountBlock().

struct TwoBitFixed {
  static constexpr Codec kCodec = Codec::kTwoBitFixed;

  template <typename Team>
  TF_GC_HOST_DEVICE static void Encode(const Team& team, const float* p,
                                       const float* residual, float threshold,
                                       uint8_t* code, float* kept, uint16_t*) {
    constexpr int kElements = Team::kElements;
    if (IsWhole(team, p)) {
      EncodeElements<kElements, true>(p, residual, threshold, threshold, code,
                                      kept);
    } else {
      EncodeElements<kElements, false>(p, residual, threshold, threshold, code,
                                       kept);
    }
  }

  static auto ValuesOf(float scale) { return TwoBitValues(scale); }

  TF_GC_HOST_DEVICE static void CountBlock(const uint8_t* const* codes,
                                           const uint16_t* const*,
                                           int64_t replicas, int64_t block,
                                           int bits, uint8_t* counts) {
    constexpr int64_t kBytes = CodeBytes(kCodec);
    for (int64_t i = 0; i < kBytes; ++i) {
      CountByte(codes, replicas, block * kBytes + i, bits, counts);
    }
  }
};

struct TwoBitAuto : Scaled<TwoBitAuto> {
  static constexpr Codec kCodec = Codec::kTwoBitAuto;

  template <bool kWhole, typename Team>
  TF_GC_HOST_DEVICE static uint16_t EncodeScaled(const Team& team,
                                                 const float* p,
                                                 const float* residual,
                                                 uint8_t* code, float* kept) {
    constexpr int kElements = Team::kElements;
    const BFloat16 scale = AutoScale(LargestFinite<kWhole>(team, p));
    EncodeElements<kElements, kWhole>(p, residual, AutoThreshold(scale),
                                      ToFloat(scale), code, kept);
    return scale.bits;
  }

  static auto ValuesOf(float scale) { return TwoBitValues(scale); }
};

}  // namespace tf_gc
