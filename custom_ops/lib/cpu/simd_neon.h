// 16 float lanes in four NEON registers, for the *_simd.inc. Include after
// <arm_neon.h>; everything here is local to the file that includes it.

#pragma once

namespace tf_gc::neon {
namespace {

constexpr int kParts = 4;

template <typename Part>
struct Parts {
  Part part[kParts];
};
using Vec = Parts<float32x4_t>;
// All bits of a lane are set, or none.
using Mask = Parts<uint32x4_t>;
using Ints = Parts<int32x4_t>;

constexpr int kLanes = 16;
// Sums of this many Vec fit into the registers.
constexpr int kVecsPerSum = 4;

// The results of `of` for the number of each part.
template <typename Of>
inline auto Each(Of of) {
  return Parts<decltype(of(0))>{{of(0), of(1), of(2), of(3)}};
}

inline uint32x4_t Bits(float32x4_t v) { return vreinterpretq_u32_f32(v); }
inline float32x4_t Floats(uint32x4_t v) { return vreinterpretq_f32_u32(v); }
inline int32x4_t SignedBits(float32x4_t v) { return vreinterpretq_s32_f32(v); }

inline Vec Set(float x) {
  return Each([&](int) { return vdupq_n_f32(x); });
}
inline Vec Add(Vec a, Vec b) {
  return Each([&](int i) { return vaddq_f32(a.part[i], b.part[i]); });
}
inline Vec Mul(Vec a, Vec b) {
  return Each([&](int i) { return vmulq_f32(a.part[i], b.part[i]); });
}
inline Vec Abs(Vec v) {
  return Each([&](int i) { return vabsq_f32(v.part[i]); });
}

inline Vec Load(const float* from) {
  return Each([&](int i) { return vld1q_f32(from + 4 * i); });
}
inline Vec Load(const Half* from) {
  return Each([&](int i) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from[4 * i].bits)));
  });
}
inline Vec Load(const BFloat16* from) {
  return Each([&](int i) {
    return Floats(vshll_n_u16(vld1_u16(&from[4 * i].bits), 16));
  });
}

inline void Store(Vec v, float* to) {
  for (int i = 0; i < kParts; ++i) vst1q_f32(to + 4 * i, v.part[i]);
}

// The lower halves of the numbers of two registers, and the upper ones.
inline uint8x16_t LowHalves(uint16x8_t a, uint16x8_t b) {
  return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}
inline uint8x16_t HighHalves(uint16x8_t a, uint16x8_t b) {
  return vuzp2q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}
inline uint16x8_t LowHalves(uint32x4_t a, uint32x4_t b) {
  return vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
}
inline uint16x8_t HighHalves(uint32x4_t a, uint32x4_t b) {
  return vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
}

// The lowest byte of each lane.
inline uint8x16_t LowBytes(const Mask& v) {
  return LowHalves(LowHalves(v.part[0], v.part[1]),
                   LowHalves(v.part[2], v.part[3]));
}
inline Mask BitsOf(const Vec& v) {
  return Each([&](int i) { return Bits(v.part[i]); });
}
inline void StoreLowBytes(Vec v, uint8_t* to) {
  vst1q_u8(to, LowBytes(BitsOf(v)));
}

constexpr int kStreamAlignment = sizeof(uint8x16_t);

// Copies: these processors see by themselves that lines are written as a whole,
// and do not read them first.
inline void Stream(const void* from, int bytes, void* to) {
  memcpy(to, from, bytes);
}
inline void EndStream() {}

// Replaces every NaN by the one with the bits kNaNBits.
inline float32x4_t WithOneNaN(float32x4_t v) {
  return vbslq_f32(vceqq_f32(v, v), v, Floats(vdupq_n_u32(kNaNBits)));
}

// These round to nearest even.
inline void RoundTo(Vec v, float* to) {
  Store(Each([&](int i) { return WithOneNaN(v.part[i]); }), to);
}
inline void RoundTo(Vec v, Half* to) {
  for (int i = 0; i < kParts; ++i) {
    const float16x4_t half = vcvt_f16_f32(WithOneNaN(v.part[i]));
    vst1_u16(&to[4 * i].bits, vreinterpret_u16_f16(half));
  }
}
inline void RoundTo(Vec v, BFloat16* to) {
  for (int i = 0; i < kParts; ++i) {
    const uint32x4_t bits = Bits(WithOneNaN(v.part[i]));
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(odd, vdupq_n_u32(0x7fff));
    vst1_u16(&to[4 * i].bits, vaddhn_u32(bits, up));
  }
}

// For non-negative values, in the order of their bits: NaN is above infinity.
inline Vec MaxByBits(Vec a, Vec b) {
  return Each([&](int i) {
    return vreinterpretq_f32_s32(
        vmaxq_s32(SignedBits(a.part[i]), SignedBits(b.part[i])));
  });
}
// The largest lane.
inline float MaxLaneByBits(Vec v) {
  const Ints bits = Each([&](int i) { return SignedBits(v.part[i]); });
  return BitCast<float>(
      vmaxvq_s32(vmaxq_s32(vmaxq_s32(bits.part[0], bits.part[1]),
                           vmaxq_s32(bits.part[2], bits.part[3]))));
}
inline bool AllBelowByBits(Vec v, float limit) {
  return BitCast<int32_t>(MaxLaneByBits(v)) < BitCast<int32_t>(limit);
}

inline Mask GreaterEqual(Vec a, Vec b) {
  return Each([&](int i) { return vcgeq_f32(a.part[i], b.part[i]); });
}
inline Mask Greater(Vec a, Vec b) {
  return Each([&](int i) { return vcgtq_f32(a.part[i], b.part[i]); });
}
// A bit for each lane, the first in the lowest.
inline uint16_t MaskBits(Mask mask) {
  const uint32x4_t own = {1, 2, 4, 8};
  uint32x4_t bits = vandq_u32(mask.part[0], own);
  bits = vorrq_u32(bits, vandq_u32(mask.part[1], vshlq_n_u32(own, 4)));
  bits = vorrq_u32(bits, vandq_u32(mask.part[2], vshlq_n_u32(own, 8)));
  bits = vorrq_u32(bits, vandq_u32(mask.part[3], vshlq_n_u32(own, 12)));
  return static_cast<uint16_t>(vaddvq_u32(bits));
}
inline Mask And(Mask a, Mask b) {
  return Each([&](int i) { return vandq_u32(a.part[i], b.part[i]); });
}
inline Mask Xor(Mask a, Mask b) {
  return Each([&](int i) { return veorq_u32(a.part[i], b.part[i]); });
}
// Where the sign bit is set.
inline Mask SignMask(Vec v) {
  return Each([&](int i) { return vcltzq_s32(SignedBits(v.part[i])); });
}
// a where the mask is set, else b.
inline Vec Select(Mask mask, Vec a, Vec b) {
  return Each(
      [&](int i) { return vbslq_f32(mask.part[i], a.part[i], b.part[i]); });
}

// v minus what is sent of v: `magnitude` with the sign of v where the mask is
// set, nothing elsewhere.
// Subtracting +0 changes no value.
inline Vec Subtract(Mask mask, Vec v, Vec magnitude) {
  return Each([&](int i) {
    const float32x4_t sent =
        vbslq_f32(vdupq_n_u32(0x7fffffff), magnitude.part[i], v.part[i]);
    return vsubq_f32(v.part[i], Floats(vandq_u32(mask.part[i], Bits(sent))));
  });
}

// The sum of the lanes in the order of TreeSum.
inline float SumLanes(Vec v) {
  const float32x4_t by4 = vaddq_f32(vaddq_f32(v.part[0], v.part[2]),
                                    vaddq_f32(v.part[1], v.part[3]));
  return vpadds_f32(vadd_f32(vget_low_f32(by4), vget_high_f32(by4)));
}

// Joins what pairs of bytes have in their lowest kBits bits.
template <int kBits>
inline uint8x16_t JoinPairs(uint8x16_t a, uint8x16_t b) {
  return vsliq_n_u8(vuzp2q_u8(a, b), vuzp1q_u8(a, b), kBits);
}

// Writes the codes of a block, plus or minus by the sign of p where sent.
inline void PackCodes(const Mask* sent, const Vec* p, uint8_t* codes) {
  // One code in each byte.
  const auto codes_of = [&](int i) {
    const Mask bits = BitsOf(p[i]);
    const uint8x16_t high = HighHalves(HighHalves(bits.part[0], bits.part[1]),
                                       HighHalves(bits.part[2], bits.part[3]));
    const int8x16_t code =
        vsraq_n_s8(vdupq_n_s8(static_cast<int8_t>(kCodePlus)),
                   vreinterpretq_s8_u8(high), 7);
    return vandq_u8(LowBytes(sent[i]), vreinterpretq_u8_s8(code));
  };
  for (int i = 0; i < kBlockSize / kLanes; i += 4) {
    vst1q_u8(codes + i * kLanes / 4,
             JoinPairs<4>(JoinPairs<2>(codes_of(i), codes_of(i + 1)),
                          JoinPairs<2>(codes_of(i + 2), codes_of(i + 3))));
  }
}

// The upper bytes of the values of up to 16 codes, of which the lowest bytes
// are zero: scales are bfloat16, and levels of them have few bits more.
struct Table {
  uint8x16_t bytes[3];
};
using LevelTable = Table;

inline Table TableOf(const Vec& values) {
  const Mask bits = BitsOf(values);
  const uint16x8_t low[2] = {LowHalves(bits.part[0], bits.part[1]),
                             LowHalves(bits.part[2], bits.part[3])};
  const uint16x8_t high[2] = {HighHalves(bits.part[0], bits.part[1]),
                              HighHalves(bits.part[2], bits.part[3])};
  return {{HighHalves(low[0], low[1]), LowHalves(high[0], high[1]),
           HighHalves(high[0], high[1])}};
}

// The values of kLanes codes, one in each byte.
inline Vec ValuesOf(const Table& table, uint8x16_t codes) {
  const auto low = vzipq_u8(vdupq_n_u8(0), vqtbl1q_u8(table.bytes[0], codes));
  const auto high = vzipq_u8(vqtbl1q_u8(table.bytes[1], codes),
                             vqtbl1q_u8(table.bytes[2], codes));
  return Each([&](int i) {
    const auto both = vzipq_u16(vreinterpretq_u16_u8(low.val[i / 2]),
                                vreinterpretq_u16_u8(high.val[i / 2]));
    return vreinterpretq_f32_u16(both.val[i % 2]);
  });
}

// The values of the four codes.
inline Table MakeTable(float scale) {
  const float32x4_t units = {0.0f, BitCast<float>(kNaNBits), -1.0f, 1.0f};
  // The scale may be infinity or NaN.
  const float32x4_t values = vsetq_lane_f32(0.0f, vmulq_n_f32(units, scale), 0);
  return TableOf(Each([&](int) { return values; }));
}

// The values of the kLanes codes that start at `codes`.
inline Vec Lookup(const Table& table, const uint8_t* codes) {
  uint32_t word;
  memcpy(&word, codes, sizeof(word));
  const uint8x16_t own = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  const int8x16_t shifts = vreinterpretq_s8_u32(vdupq_n_u32(0x00fefcfa));
  const uint8x16_t bytes =
      vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(word)), own);
  const uint8x16_t each = vandq_u8(vshlq_u8(bytes, shifts), vdupq_n_u8(0b11));
  return ValuesOf(table, each);
}

// The values of the codes of kMagnitudeBits and a sign, with the scale 1.
template <int kMagnitudeBits>
struct CodeUnits {
  float of[16] = {};

  constexpr CodeUnits() {
    using L = Levels<kMagnitudeBits>;
    for (int i = 1; i <= L::kCount; ++i) {
      of[i] = L::Unit(i);
      of[L::kMinus + i] = -L::Unit(i);
    }
    of[L::kNotFinite] = __builtin_nanf("");
  }
};

template <int kMagnitudeBits>
inline LevelTable MakeLevelTable(float scale) {
  static constexpr CodeUnits<kMagnitudeBits> kUnits;
  Vec values = Mul(Load(kUnits.of), Set(scale));
  values.part[0] = vsetq_lane_f32(0.0f, values.part[0], 0);
  return TableOf(values);
}

// The codes of kVecsPerSum vectors, one in each byte.
constexpr int kLevelGroups = kVecsPerSum;
struct LevelCodes {
  uint8x16_t group[kLevelGroups];
};

// The kLanes codes whose lowest bits start at `plane`.
template <int kMagnitudeBits>
inline uint8x16_t JoinPlanes(const uint8_t* plane) {
  const uint8x16_t byte = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const uint8x16_t own = {1, 2, 4, 8, 16, 32, 64, 128,
                          1, 2, 4, 8, 16, 32, 64, 128};
  uint8x16_t codes = vdupq_n_u8(0);
  for (int i = kMagnitudeBits; i >= 0; --i) {
    uint16_t word;
    memcpy(&word, plane + i * kPlaneBytes, sizeof(word));
    const uint8x16_t bits =
        vqtbl1q_u8(vreinterpretq_u8_u16(vdupq_n_u16(word)), byte);
    const uint8x16_t minus_one = vtstq_u8(bits, own);
    codes = vsubq_u8(vaddq_u8(codes, codes), minus_one);
  }
  return codes;
}

// The values of vector `vec` of the codes.
template <int kMagnitudeBits>
inline Vec LookupLevels(const LevelTable& table, const LevelCodes& codes,
                        int vec) {
  return ValuesOf(table, codes.group[vec]);
}

// v with the signs of the kLanes one-bit codes that start at `codes`, if it is
// positive: minus where a bit is 0.
inline Vec WithSigns(Vec v, const uint8_t* codes) {
  const uint32x4_t first = {128, 64, 32, 16};
  const uint32x4_t second = {8, 4, 2, 1};
  return Each([&](int i) {
    const uint32x4_t plus =
        vtstq_u32(vdupq_n_u32(codes[i / 2]), i % 2 == 0 ? first : second);
    return vbslq_f32(plus, v.part[i], vnegq_f32(v.part[i]));
  });
}

// The kLanes counts of kBits bits that start at `counts`.
template <int kBits>
inline Ints LoadCounts(const uint8_t* counts) {
  int16x8_t low, high;
  if constexpr (kBits == 16) {
    low = vreinterpretq_s16_u8(vld1q_u8(counts));
    high = vreinterpretq_s16_u8(vld1q_u8(counts + 16));
  } else {
    int8x16_t bytes;
    if constexpr (kBits == 8) {
      bytes = vreinterpretq_s8_u8(vld1q_u8(counts));
    } else {
      const int8x8_t pairs = vreinterpret_s8_u8(vld1_u8(counts));
      const int8x8_t first = vshr_n_s8(pairs, 4);
      const int8x8_t second = vshr_n_s8(vshl_n_s8(pairs, 4), 4);
      bytes = vcombine_s8(vzip1_s8(first, second), vzip2_s8(first, second));
    }
    low = vmovl_s8(vget_low_s8(bytes));
    high = vmovl_high_s8(bytes);
  }
  return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
           vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}};
}

// count * factor, NaN where the count is `not_finite`.
inline Vec CountValues(Ints counts, int not_finite, Vec factor) {
  return Each([&](int i) {
    const int32x4_t count = counts.part[i];
    const float32x4_t value = vmulq_f32(vcvtq_f32_s32(count), factor.part[i]);
    return vbslq_f32(vceqq_s32(count, vdupq_n_s32(not_finite)),
                     Floats(vdupq_n_u32(kNaNBits)), value);
  });
}

}  // namespace
}  // namespace tf_gc::neon
