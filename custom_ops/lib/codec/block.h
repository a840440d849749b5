// Shared by the scalar definitions of all codecs: which elements are finite,
// how codes are packed, and the order of the additions in a block, chosen so
// that the SIMD code and the CUDA kernels can give the same bits.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#pragma once

#include <algorithm>
#include <cstdint>

#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// Below kMaxMagnitude the sum of a block cannot overflow.
constexpr float kMaxMagnitude = 0x1p120f;

// ---- Codes -----------------------------------------------------------------

// Codes of one, two or eight bits in a byte.
template <int kBits>
constexpr int kCodesPerByte = 8 / kBits;

// Where the code of element i lies in its byte.
template <int kBits>
TF_GC_HOST_DEVICE constexpr int CodeShift(int64_t i) {
  constexpr int kCodes = kCodesPerByte<kBits>;
  return static_cast<int>((kCodes - 1 - i % kCodes) * kBits);
}

// Eight bytes as a word, the first one lowest.
TF_GC_HOST_DEVICE inline uint64_t WordOf(const uint8_t* bytes) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= uint64_t{bytes[i]} << 8 * i;
  return word;
}

// The lowest bits of eight bytes, the first byte's bit lowest.
TF_GC_HOST_DEVICE inline uint8_t LowestBits(uint64_t bytes) {
  // Moves the bit of byte i to the place 56 + i, and no two bits to one place.
  const uint64_t bits = (bytes & 0x0101010101010101) * 0x0102040810204080;
  return static_cast<uint8_t>(bits >> 56);
}

// Eight bytes, each 1 or 0 as a bit of `bits` is.
TF_GC_HOST_DEVICE inline uint64_t BytesOf(uint8_t bits) {
  const uint64_t own = bits * uint64_t{0x0101010101010101} & 0x8040201008040201;
  return (own + 0x7f7f7f7f7f7f7f7f) >> 7 & 0x0101010101010101;
}

// Packs a block's codes, one in each byte of `code`.
template <int kBits>
TF_GC_HOST_DEVICE inline void PackBlock(const uint8_t* code, uint8_t* codes) {
  if constexpr (InPlanes(kBits)) {
    for (int byte = 0; byte < kPlaneBytes; ++byte) {
      const uint64_t word = WordOf(code + byte * 8);
      for (int plane = 0; plane < kBits; ++plane) {
        codes[plane * kPlaneBytes + byte] = LowestBits(word >> plane);
      }
    }
  } else {
    constexpr int kCodes = kCodesPerByte<kBits>;
    for (int i = 0; i < kBlockSize; i += kCodes) {
      int byte = 0;
      for (int j = 0; j < kCodes; ++j) {
        byte |= code[i + j] << CodeShift<kBits>(j);
      }
      codes[i / kCodes] = static_cast<uint8_t>(byte);
    }
  }
}

template <int kBits>
TF_GC_HOST_DEVICE inline void UnpackBlock(const uint8_t* codes, uint8_t* code) {
  if constexpr (InPlanes(kBits)) {
    for (int byte = 0; byte < kPlaneBytes; ++byte) {
      uint64_t word = 0;
      for (int plane = 0; plane < kBits; ++plane) {
        word |= BytesOf(codes[plane * kPlaneBytes + byte]) << plane;
      }
      for (int i = 0; i < 8; ++i) {
        code[byte * 8 + i] = static_cast<uint8_t>(word >> 8 * i);
      }
    }
  } else {
    constexpr int kCodes = kCodesPerByte<kBits>;
    for (int byte = 0; byte < kBlockSize / kCodes; ++byte) {
      for (int j = 0; j < kCodes; ++j) {
        code[byte * kCodes + j] =
            codes[byte] >> CodeShift<kBits>(j) & ((1 << kBits) - 1);
      }
    }
  }
}

// ---- Elements and blocks ---------------------------------------------------

TF_GC_HOST_DEVICE inline bool IsFinite(float p) {
  return Abs(p) < kMaxMagnitude;
}

// All bits, or none.
TF_GC_HOST_DEVICE inline uint32_t MaskOf(bool condition) {
  return 0u - static_cast<uint32_t>(condition);
}

// The sum of kBlockSize values. Overwrites the values. Each step adds pairs of
// values whose indices differ in one bit, in the order of bits 4, 5, 6, 3, 2,
// 1, 0. In registers of 16 lanes the first three steps add registers, and the
// others add the lanes of the register that is left.
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

// A codec says what a block becomes when a team shares the block. Each member
// of the team has kElements of its elements, and zeros in place of elements
// after the end of the tensor. All members call each function together. The
// CPU's team has this one member; the GPU's team is in cuda/team.cuh.
struct Alone {
  static constexpr int kElements = kBlockSize;

  // The elements of the block that are in the tensor, up to kBlockSize.
  int size;

  // Whether the member's element i is.
  TF_GC_HOST_DEVICE bool Inside(int i) const { return i < size; }
  // TreeSum() over all members' values, which it may overwrite.
  TF_GC_HOST_DEVICE float Sum(float* values) const { return TreeSum(values); }
  // The largest of all members' values, which are not negative.
  TF_GC_HOST_DEVICE float Max(float value) const { return value; }
  // Whether it is true for all members.
  TF_GC_HOST_DEVICE bool All(bool condition) const { return condition; }
  // Whether it is true for all members of all teams that must take the same
  // path through the code as this team.
  TF_GC_HOST_DEVICE bool AllTeams(bool condition) const { return condition; }
};

// Whether all of a member's elements are finite.
template <int kElements>
TF_GC_HOST_DEVICE inline bool AreFinite(const float* p) {
  bool finite = true;
  for (int i = 0; i < kElements; ++i) finite &= IsFinite(p[i]);
  return finite;
}

// Whether all of the block's elements are in the tensor and finite, as they are
// in nearly all blocks: where it is known that they are, less is to be done.
template <typename Team>
TF_GC_HOST_DEVICE inline bool IsWhole(const Team& team, const float* p) {
  return team.AllTeams(team.size == kBlockSize &&
                       AreFinite<Team::kElements>(p));
}

// The Encode() of a codec with scales. Its EncodeScaled<kWhole>(), where
// `kWhole` is what IsWhole() says, returns the block's scale.
template <typename Definition>
struct Scaled {
  template <typename Team>
  TF_GC_HOST_DEVICE static void Encode(const Team& team, const float* p,
                                       const float* residual, float,
                                       uint8_t* code, float* kept,
                                       uint16_t* scale) {
    *scale = IsWhole(team, p) ? Definition::template EncodeScaled<true>(
                                    team, p, residual, code, kept)
                              : Definition::template EncodeScaled<false>(
                                    team, p, residual, code, kept);
  }
};

// The largest magnitude of the block's finite elements. `kWhole`: as IsWhole()
// says.
template <bool kWhole, typename Team>
TF_GC_HOST_DEVICE inline float LargestFinite(const Team& team, const float* p) {
  float largest = 0;
  for (int i = 0; i < Team::kElements; ++i) {
    const float magnitude = kWhole || IsFinite(p[i]) ? Abs(p[i]) : 0.0f;
    largest = magnitude > largest ? magnitude : largest;
  }
  return team.Max(largest);
}

// The functions below take the first `size` <= kBlockSize elements of a block.

// `residual` is null where nothing is kept. `addend` is null, or what is added
// after the residual.
template <typename T>
inline void LoadBlock(const T* gradient, const float* residual,
                      const float* addend, int size, float* p) {
  for (int i = 0; i < size; ++i) p[i] = ToFloat(gradient[i]);
  if (residual != nullptr) {
    for (int i = 0; i < size; ++i) p[i] += residual[i];
  }
  if (addend != nullptr) {
    for (int i = 0; i < size; ++i) p[i] += addend[i];
  }
  for (int i = size; i < kBlockSize; ++i) p[i] = 0;
}

// Encodes a block as `Definition` (TwoBitFixed and the like) says.
template <typename Definition, typename T>
inline void EncodeBlock(const T* gradient, const float* residual_in,
                        const float* addend, float* residual_out, int size,
                        float threshold, uint8_t* codes, uint16_t* scale) {
  // In arrays of their own, which the compiler knows not to overlap.
  float p[kBlockSize];
  float residual[kBlockSize] = {};
  float kept[kBlockSize];
  uint8_t code[kBlockSize];
  LoadBlock(gradient, residual_in, addend, size, p);
  if (residual_in != nullptr) std::copy_n(residual_in, size, residual);
  Definition::Encode(Alone{size}, p, residual, threshold, code, kept, scale);
  if (residual_out != nullptr) std::copy_n(kept, size, residual_out);
  PackBlock<CodeBits(Definition::kCodec)>(code, codes);
}

// The sums of a block over the messages. codes[r] and scales[r] point at the
// first block of message r. Without scales they are in units of the threshold,
// exact up to 2^24 messages.
template <typename Definition>
inline void SumBlock(const uint8_t* const* codes, const uint16_t* const* scales,
                     int64_t replicas, int64_t block, float* sums) {
  constexpr Codec kCodec = Definition::kCodec;
  for (int64_t r = 0; r < replicas; ++r) {
    uint8_t code[kBlockSize];
    UnpackBlock<CodeBits(kCodec)>(codes[r] + block * CodeBytes(kCodec), code);
    float scale = 1.0f;
    if (HasScales(kCodec)) scale = ToFloat(BFloat16{scales[r][block]});
    const auto value_of = Definition::ValuesOf(scale);
    for (int i = 0; i < kBlockSize; ++i) {
      const float value = value_of(code[i]);
      sums[i] = r == 0 ? value : sums[i] + value;
    }
  }
}

}  // namespace tf_gc
