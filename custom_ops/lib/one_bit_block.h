// The scalar definition of the one-bit codecs: what a block becomes.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#ifndef TF_GC_CUSTOM_OPS_LIB_ONE_BIT_BLOCK_H_
#define TF_GC_CUSTOM_OPS_LIB_ONE_BIT_BLOCK_H_

#include <cstdint>

#include "custom_ops/lib/block.h"
#include "custom_ops/lib/counts_block.h"
#include "custom_ops/lib/wire.h"

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
  return BitCast<float>(BitCast<uint32_t>(scale) ^
                        (MaskOf(!plus) & 0x80000000u));
}

// Encodes the first `size` > 0 elements of a block, of which `scale_of(p)`
// gives the scale and is_plus(p[i]) the signs.
template <typename T, typename ScaleOf, typename IsPlus>
TF_GC_HOST_DEVICE inline void EncodeOneBitBlock(
    const T* gradient, const float* residual_in, const float* addend,
    float* residual_out, int size, uint8_t* codes, uint16_t* scale,
    ScaleOf scale_of, IsPlus is_plus) {
  float p[kBlockSize];
  LoadBlock(gradient, residual_in, addend, size, p);
  bool finite = true;
  for (int i = 0; i < kBlockSize; ++i) finite &= IsFinite(p[i]);
  uint8_t code[kBlockSize] = {};
  if (finite) {
    const BFloat16 rounded = scale_of(p);
    const float value = ToFloat(rounded);
    *scale = rounded.bits;
    for (int i = 0; i < size; ++i) {
      code[i] = is_plus(p[i]);
      p[i] -= SignValue(is_plus(p[i]), value);
    }
    for (int i = 0; i < size; ++i) residual_out[i] = p[i];
  } else {
    *scale = kScaleNaN;
    for (int i = 0; i < size; ++i) residual_out[i] = residual_in[i];
  }
  PackBlock<1>(code, codes);
}

// The sums of a block over the messages, whose codes[r] and scales[r] point at
// their first block.
TF_GC_HOST_DEVICE inline void SumOneBitBlock(const uint8_t* const* codes,
                                             const uint16_t* const* scales,
                                             int64_t replicas, int64_t block,
                                             float* sums) {
  for (int64_t r = 0; r < replicas; ++r) {
    uint8_t code[kBlockSize];
    UnpackBlock<1>(codes[r] + block * CodeBytes(Codec::kOneBitAuto), code);
    const float scale = ToFloat(BFloat16{scales[r][block]});
    for (int i = 0; i < kBlockSize; ++i) {
      const float value = SignValue(code[i], scale);
      sums[i] = r == 0 ? value : sums[i] + value;
    }
  }
}

TF_GC_HOST_DEVICE inline bool IsNaNScale(uint16_t scale) {
  return (scale & 0x7fff) > 0x7f80;
}

// ---- The codecs, with the functions that scalar.cc takes --------------------

struct OneBitFixed {
  static constexpr Codec kCodec = Codec::kOneBitFixed;

  template <typename T>
  TF_GC_HOST_DEVICE static void EncodeBlock(const T* gradient,
                                            const float* residual_in,
                                            const float* addend,
                                            float* residual_out, int size,
                                            float threshold, uint8_t* codes,
                                            uint16_t* scale) {
    EncodeOneBitBlock(
        gradient, residual_in, addend, residual_out, size, codes, scale,
        [](const float*) { return BFloat16{kScaleOne}; },
        [=](float p) { return p > threshold; });
  }

  // Counts in float32, exact up to 2^24 messages.
  TF_GC_HOST_DEVICE static void SumBlock(const uint8_t* const* codes,
                                         const uint16_t* const* scales,
                                         int64_t replicas, int64_t block, float,
                                         float* sums) {
    SumOneBitBlock(codes, scales, replicas, block, sums);
  }

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
        const int sum = 2 * plus[j] - static_cast<int>(replicas);
        count[j] = static_cast<uint16_t>(marked ? CountNotFinite(bits) : sum);
      }
      StoreCounts<kFields>(count, i, bits, counts);
    }
  }
};

// The scale of EF-SignSGD (Karimireddy et al. 2019), for each block.
struct OneBitAuto {
  static constexpr Codec kCodec = Codec::kOneBitAuto;

  template <typename T>
  TF_GC_HOST_DEVICE static void EncodeBlock(
      const T* gradient, const float* residual_in, const float* addend,
      float* residual_out, int size, float, uint8_t* codes, uint16_t* scale) {
    EncodeOneBitBlock(
        gradient, residual_in, addend, residual_out, size, codes, scale,
        [=](const float* p) {
          float magnitudes[kBlockSize];
          for (int i = 0; i < kBlockSize; ++i) magnitudes[i] = Abs(p[i]);
          return MeanScale(TreeSum(magnitudes), size);
        },
        [](float p) { return p >= 0; });
  }

  TF_GC_HOST_DEVICE static void SumBlock(const uint8_t* const* codes,
                                         const uint16_t* const* scales,
                                         int64_t replicas, int64_t block, float,
                                         float* sums) {
    SumOneBitBlock(codes, scales, replicas, block, sums);
  }
};

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_ONE_BIT_BLOCK_H_
