// The scalar definition of the two-bit codecs: what an element and a block
// become.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#ifndef TF_GC_CUSTOM_OPS_LIB_TWO_BIT_BLOCK_H_
#define TF_GC_CUSTOM_OPS_LIB_TWO_BIT_BLOCK_H_

#include <cstdint>

#include "custom_ops/lib/block.h"
#include "custom_ops/lib/counts_block.h"
#include "custom_ops/lib/wire.h"

namespace tf_gc {

// The least threshold of a block in kTwoBitAuto: a block of zeros sends zeros,
// and what is sent is not subnormal.
constexpr float kMinMagnitude = 0x1p-126f;
// The first threshold of a block is this part of its mean magnitude, the second
// this part of the mean magnitude of what reaches the first.
constexpr float kMeanFactor = 0.7f;
constexpr float kScaleFactor = 0.5f;

// ---- Elements --------------------------------------------------------------

// What is sent of an element, and what is kept.
struct Element {
  uint8_t code;
  float residual;
};

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

// A threshold of a block in kTwoBitAuto: `factor` times the mean of `count`
// magnitudes that add up to `sum`.
TF_GC_HOST_DEVICE inline float AutoThreshold(float factor, float sum,
                                             int count) {
  if (count == 0) return kMinMagnitude;
  const float threshold = factor * sum / static_cast<float>(count);
  return threshold > kMinMagnitude ? threshold : kMinMagnitude;
}

// The scale of a block from the sum of the magnitudes of its `count` elements
// that are sent.
TF_GC_HOST_DEVICE inline BFloat16 AutoScale(float sum, int count) {
  BFloat16 scale;
  RoundTo(count == 0 ? 0.0f : sum / static_cast<float>(count), &scale);
  return scale;
}

// Sets `kept` to the magnitudes of the finite elements that reach `least`, to 0
// for the others; returns how many do.
TF_GC_HOST_DEVICE inline int KeepLarge(const float* p, float least,
                                       float* kept) {
  int count = 0;
  for (int i = 0; i < kBlockSize; ++i) {
    const bool large = IsFinite(p[i]) && Abs(p[i]) >= least;
    kept[i] = large ? Abs(p[i]) : 0.0f;
    count += large;
  }
  return count;
}

// `encode(p, residual)` gives an Element.
template <typename Encode>
TF_GC_HOST_DEVICE inline void EncodeElements(const float* p,
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
  PackBlock<2>(code, codes);
}

// Adds the values of a block's codes to its sums, or makes them the sums.
TF_GC_HOST_DEVICE inline void AddTwoBitBlock(const uint8_t* codes, float scale,
                                             bool first, float* sums) {
  uint8_t code[kBlockSize];
  UnpackBlock<2>(codes, code);
  for (int i = 0; i < kBlockSize; ++i) {
    const float value = CodeValue(code[i], scale);
    sums[i] = first ? value : sums[i] + value;
  }
}

// Counts the four elements of code byte i over `replicas` messages.
TF_GC_HOST_DEVICE inline void CountByte(const uint8_t* const* codes,
                                        int64_t replicas, int64_t i, int bits,
                                        uint8_t* counts) {
  constexpr int kLowBits = 0b01010101;
  constexpr int kFields = kCodesPerByte<2>;
  // The sums are in 16 bits each: every message adds 1 plus its code's value.
  uint64_t sums = 0;
  int not_finite = 0;
  for (int64_t r = 0; r < replicas; ++r) {
    const int low = codes[r][i];
    const int high = low >> 1;
    not_finite |= low & ~high;
    const uint64_t added = (high & low & kLowBits) << 1 | (~high & kLowBits);
    sums += (added >> 6 | added << 12 | added << 30 | added << 48) &
            0x0003000300030003u;
  }
  uint16_t count[kFields];
  for (int j = 0; j < kFields; ++j) {
    const bool marked = not_finite >> CodeShift<2>(j) & 1;
    count[j] = static_cast<uint16_t>(
        marked ? CountNotFinite(bits)
               : static_cast<int>(sums >> 16 * j & 0xffffu) -
                     static_cast<int>(replicas));
  }
  StoreCounts<kFields>(count, i, bits, counts);
}

// ---- The codecs, with the functions that scalar.cc takes --------------------

struct TwoBitFixed {
  static constexpr Codec kCodec = Codec::kTwoBitFixed;

  template <typename T>
  TF_GC_HOST_DEVICE static void EncodeBlock(const T* gradient,
                                            const float* residual_in,
                                            const float* addend,
                                            float* residual_out, int size,
                                            float threshold, uint8_t* codes,
                                            uint16_t*) {
    float p[kBlockSize];
    LoadBlock(gradient, residual_in, addend, size, p);
    EncodeElements(p, residual_in, residual_out, size, codes,
                   [=](float value, float residual) {
                     return EncodeFixedElement(value, residual, threshold);
                   });
  }

  // Counts in float32, exact up to 2^24 messages.
  TF_GC_HOST_DEVICE static void SumBlock(const uint8_t* const* codes,
                                         const uint16_t* const*,
                                         int64_t replicas, int64_t block,
                                         float threshold, float* sums) {
    for (int64_t r = 0; r < replicas; ++r) {
      AddTwoBitBlock(codes[r] + block * CodeBytes(kCodec), 1.0f, r == 0, sums);
    }
    for (int i = 0; i < kBlockSize; ++i) sums[i] *= threshold;
  }

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

struct TwoBitAuto {
  static constexpr Codec kCodec = Codec::kTwoBitAuto;

  template <typename T>
  TF_GC_HOST_DEVICE static void EncodeBlock(
      const T* gradient, const float* residual_in, const float* addend,
      float* residual_out, int size, float, uint8_t* codes, uint16_t* scale) {
    float p[kBlockSize];
    float magnitudes[kBlockSize];
    LoadBlock(gradient, residual_in, addend, size, p);
    int finite = size - kBlockSize;  // The zeros after the end do not count.
    for (int i = 0; i < kBlockSize; ++i) {
      magnitudes[i] = IsFinite(p[i]) ? Abs(p[i]) : 0.0f;
      finite += IsFinite(p[i]);
    }
    const float first = AutoThreshold(kMeanFactor, TreeSum(magnitudes), finite);
    const int large = KeepLarge(p, first, magnitudes);
    const float least = AutoThreshold(kScaleFactor, TreeSum(magnitudes), large);
    const int sent = KeepLarge(p, least, magnitudes);
    const BFloat16 rounded = AutoScale(TreeSum(magnitudes), sent);
    const float value = ToFloat(rounded);
    *scale = rounded.bits;

    EncodeElements(p, residual_in, residual_out, size, codes,
                   [=](float element, float residual) {
                     return EncodeAutoElement(element, residual, least, value);
                   });
  }

  TF_GC_HOST_DEVICE static void SumBlock(const uint8_t* const* codes,
                                         const uint16_t* const* scales,
                                         int64_t replicas, int64_t block, float,
                                         float* sums) {
    for (int64_t r = 0; r < replicas; ++r) {
      AddTwoBitBlock(codes[r] + block * CodeBytes(kCodec),
                     ToFloat(BFloat16{scales[r][block]}), r == 0, sums);
    }
  }
};

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_TWO_BIT_BLOCK_H_
