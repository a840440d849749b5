// 16 float lanes in two AVX2 registers, for the *_simd.inc. Include inside a
// target region, after <immintrin.h>; everything here is local to the file that
// includes it.

#pragma once

namespace tf_gc::avx2 {
namespace {

struct Vec {
  __m256 lo;
  __m256 hi;
};
// All bits of a lane are set, or none.
struct Mask {
  __m256 lo;
  __m256 hi;
};
// The values of the four codes, in each 128-bit part.
using Table = __m256;
struct Ints {
  __m256i lo;
  __m256i hi;
};

constexpr int kLanes = 16;
// Sums of this many Vec fit into the registers.
constexpr int kVecsPerSum = 4;

inline __m256i Bits(__m256 v) { return _mm256_castps_si256(v); }
inline __m256 Floats(__m256i v) { return _mm256_castsi256_ps(v); }

inline Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Add(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Vec Mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Vec Abs(Vec v) {
  const __m256 magnitude = Floats(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(v.lo, magnitude), _mm256_and_ps(v.hi, magnitude)};
}

inline __m128i Load8(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
inline Vec Load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
inline Vec Load(const Half* from) {
  return {_mm256_cvtph_ps(Load8(from)), _mm256_cvtph_ps(Load8(from + 8))};
}
inline __m256 Widen(__m128i bfloat16) {
  return Floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bfloat16), 16));
}
inline Vec Load(const BFloat16* from) {
  return {Widen(Load8(from)), Widen(Load8(from + 8))};
}

inline void Store(Vec v, float* to) {
  _mm256_storeu_ps(to, v.lo);
  _mm256_storeu_ps(to + 8, v.hi);
}

// Stores the lowest byte of each lane.
inline void StoreLowBytes(Vec v, uint8_t* to) {
  const __m256i byte = _mm256_set1_epi32(0xff);
  // Packs 128-bit parts: lo0 hi0 lo1 hi1.
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packus_epi32(_mm256_and_si256(Bits(v.lo), byte),
                          _mm256_and_si256(Bits(v.hi), byte)),
      _MM_SHUFFLE(3, 1, 2, 0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packus_epi16(_mm256_castsi256_si128(words),
                                    _mm256_extracti128_si256(words, 1)));
}

constexpr int kStreamAlignment = sizeof(__m256i);

// Copies to aligned memory, past the caches.
inline void Stream(const void* from, int bytes, void* to) {
  const __m256i* source = static_cast<const __m256i*>(from);
  __m256i* target = static_cast<__m256i*>(to);
  for (int i = 0; i < bytes / kStreamAlignment; ++i) {
    _mm256_stream_si256(target + i, _mm256_load_si256(source + i));
  }
}
inline void EndStream() { _mm_sfence(); }

// Replaces every NaN by the one with the bits kNaNBits.
inline __m256 WithOneNaN(__m256 v) {
  return _mm256_blendv_ps(v, Floats(_mm256_set1_epi32(kNaNBits)),
                          _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

// These round to nearest even.
inline void RoundTo(Vec v, float* to) {
  Store({WithOneNaN(v.lo), WithOneNaN(v.hi)}, to);
}
inline void RoundTo(Vec v, Half* to) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  __m128i* parts = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(parts, _mm256_cvtps_ph(WithOneNaN(v.lo), kRounding));
  _mm_storeu_si128(parts + 1, _mm256_cvtps_ph(WithOneNaN(v.hi), kRounding));
}
inline __m256i RoundToBFloat16(__m256 v) {
  const __m256i bits = Bits(WithOneNaN(v));
  const __m256i odd =
      _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  return _mm256_srli_epi32(rounded, 16);
}
inline void RoundTo(Vec v, BFloat16* to) {
  // Packs 128-bit parts: lo0 hi0 lo1 hi1.
  const __m256i packed =
      _mm256_packus_epi32(RoundToBFloat16(v.lo), RoundToBFloat16(v.hi));
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(to),
      _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
}

// For non-negative values, in the order of their bits: NaN is above infinity.
inline __m256 MaxByBits(__m256 a, __m256 b) {
  return Floats(_mm256_max_epi32(Bits(a), Bits(b)));
}
inline Vec MaxByBits(Vec a, Vec b) {
  return {MaxByBits(a.lo, b.lo), MaxByBits(a.hi, b.hi)};
}
inline bool AllBelowByBits(Vec v, float limit) {
  const __m256i below = _mm256_cmpgt_epi32(Bits(_mm256_set1_ps(limit)),
                                           Bits(MaxByBits(v.lo, v.hi)));
  return _mm256_movemask_epi8(below) == -1;
}
// The largest lane.
inline float MaxLaneByBits(Vec v) {
  const __m256i by8 = Bits(MaxByBits(v.lo, v.hi));
  const __m128i by4 = _mm_max_epi32(_mm256_castsi256_si128(by8),
                                    _mm256_extracti128_si256(by8, 1));
  const __m128i by2 = _mm_max_epi32(by4, _mm_unpackhi_epi64(by4, by4));
  return BitCast<float>(
      _mm_cvtsi128_si32(_mm_max_epi32(by2, _mm_srli_epi64(by2, 32))));
}

inline Mask GreaterEqual(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ),
          _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ)};
}
inline Mask Greater(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ),
          _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
// A bit for each lane, the first in the lowest.
inline uint16_t MaskBits(Mask mask) {
  return static_cast<uint16_t>(_mm256_movemask_ps(mask.lo) |
                               _mm256_movemask_ps(mask.hi) << 8);
}
inline Mask And(Mask a, Mask b) {
  return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}
inline Mask Xor(Mask a, Mask b) {
  return {_mm256_xor_ps(a.lo, b.lo), _mm256_xor_ps(a.hi, b.hi)};
}
// The sign bit of a lane is the mask's.
inline Mask SignMask(Vec v) { return {v.lo, v.hi}; }
// a where the mask is set, else b.
inline Vec Select(Mask mask, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.lo, a.lo, mask.lo),
          _mm256_blendv_ps(b.hi, a.hi, mask.hi)};
}

// v minus what is sent of v: `magnitude` with the sign of v where the mask is
// set, nothing elsewhere.
// Subtracting +0 changes no value.
inline __m256 Subtract(__m256 mask, __m256 v, __m256 magnitude) {
  const __m256 sign = _mm256_and_ps(v, _mm256_set1_ps(-0.0f));
  return _mm256_sub_ps(v, _mm256_and_ps(mask, _mm256_or_ps(magnitude, sign)));
}
inline Vec Subtract(Mask mask, Vec v, Vec magnitude) {
  return {Subtract(mask.lo, v.lo, magnitude.lo),
          Subtract(mask.hi, v.hi, magnitude.hi)};
}

// The sum of the lanes in the order of TreeSum.
inline float SumLanes(Vec v) {
  const __m256 by8 = _mm256_add_ps(v.lo, v.hi);
  const __m128 by4 =
      _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

// One code in each lane.
inline __m256i Codes(__m256 sent, __m256 p) {
  const __m256i code = _mm256_add_epi32(_mm256_set1_epi32(kCodePlus),
                                        _mm256_srai_epi32(Bits(p), 31));
  return _mm256_and_si256(Bits(sent), code);
}

// The code bytes of 32 elements, one byte in each lane. The lower 128-bit part
// has the bytes of the lower halves of the four registers, the upper part has
// the bytes of the upper halves.
inline __m256i CodeBytes(const Mask* sent, const Vec* p) {
  const __m256i words0 = _mm256_packs_epi32(Codes(sent[0].lo, p[0].lo),
                                            Codes(sent[0].hi, p[0].hi));
  const __m256i words1 = _mm256_packs_epi32(Codes(sent[1].lo, p[1].lo),
                                            Codes(sent[1].hi, p[1].hi));
  // 1 << CodeShift<2>(i) for the four elements of a byte.
  const __m256i weights = _mm256_set1_epi32(0x01041040);
  const __m256i pairs =
      _mm256_maddubs_epi16(_mm256_packs_epi16(words0, words1), weights);
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Writes the codes of a block, plus or minus by the sign of p where sent.
inline void PackCodes(const Mask* sent, const Vec* p, uint8_t* codes) {
  const __m256i first =
      _mm256_packus_epi32(CodeBytes(sent, p), CodeBytes(sent + 2, p + 2));
  const __m256i second = _mm256_packus_epi32(CodeBytes(sent + 4, p + 4),
                                             CodeBytes(sent + 6, p + 6));
  const __m256i bytes = _mm256_packus_epi16(first, second);
  const __m128i even = _mm256_castsi256_si128(bytes);
  const __m128i odd = _mm256_extracti128_si256(bytes, 1);
  __m128i* parts = reinterpret_cast<__m128i*>(codes);
  _mm_storeu_si128(parts, _mm_unpacklo_epi8(even, odd));
  _mm_storeu_si128(parts + 1, _mm_unpackhi_epi8(even, odd));
}

inline Table MakeTable(float scale) {
  const int sign = static_cast<int>(0x80000000u);
  const __m256i nonzero = _mm256_setr_epi32(0, 0, -1, -1, 0, 0, -1, -1);
  const __m256i flip =
      _mm256_setr_epi32(0, kNaNBits, sign, 0, 0, kNaNBits, sign, 0);
  const __m256i bits = Bits(_mm256_set1_ps(scale));
  return Floats(_mm256_xor_si256(_mm256_and_si256(bits, nonzero), flip));
}

// The values of the kLanes codes that start at `codes`.
inline Vec Lookup(Table table, const uint8_t* codes) {
  int word;
  memcpy(&word, codes, sizeof(word));
  const __m256i words = _mm256_set1_epi32(word);
  const __m256i low = _mm256_setr_epi32(6, 4, 2, 0, 14, 12, 10, 8);
  const __m256i high = _mm256_setr_epi32(22, 20, 18, 16, 30, 28, 26, 24);
  return {_mm256_permutevar_ps(table, _mm256_srlv_epi32(words, low)),
          _mm256_permutevar_ps(table, _mm256_srlv_epi32(words, high))};
}

// The values of the codes of two or three bits for the level, and a sign: of
// the first eight codes, and of the others where there are more.
struct LevelTable {
  __m256 first;
  __m256 others;
};

template <int kMagnitudeBits>
inline LevelTable MakeLevelTable(float scale) {
  using L = Levels<kMagnitudeBits>;
  alignas(__m256) float units[8] = {};
  for (int i = 0; i < 8; ++i) {
    const int number = i & L::kCount;
    units[i] = number == 0 ? 0.0f : L::Unit(number);
  }
  const __m256 level =
      _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_load_ps(units));
  const __m256 minus = _mm256_xor_ps(level, _mm256_set1_ps(-0.0f));
  const __m256 nan = Floats(_mm256_set1_epi32(kNaNBits));
  const __m256 plus = _mm256_blend_ps(level, _mm256_setzero_ps(), 1);
  if constexpr (kMagnitudeBits == 2) {
    const __m256 both = _mm256_blend_ps(plus, minus, 0b11100000);
    return {_mm256_blend_ps(both, nan, 1 << L::kNotFinite), both};
  } else {
    return {plus, _mm256_blend_ps(minus, nan, 1)};
  }
}

// The codes of kVecsPerSum vectors. In a group, the bytes of lane i have the
// codes of element i of each quarter, the first quarter's in the lowest one.
constexpr int kLevelGroups = 2;
struct LevelCodes {
  __m256i group[kLevelGroups];
};

// The group whose lowest bits start at `plane`.
template <int kMagnitudeBits>
inline __m256i JoinPlanes(const uint8_t* plane) {
  // Bit i in the four bytes of lane i.
  const __m256i own = _mm256_setr_epi32(
      0x01010101, 0x02020202, 0x04040404, 0x08080808, 0x10101010, 0x20202020,
      0x40404040, static_cast<int>(0x80808080u));
  __m256i codes = _mm256_setzero_si256();
  for (int i = kMagnitudeBits; i >= 0; --i) {
    int word;
    memcpy(&word, plane + i * kPlaneBytes, sizeof(word));
    const __m256i bits = _mm256_and_si256(_mm256_set1_epi32(word), own);
    const __m256i minus_one = _mm256_cmpeq_epi8(bits, own);
    codes = _mm256_sub_epi8(_mm256_add_epi8(codes, codes), minus_one);
  }
  return codes;
}

// The values of the codes in the lowest bits of the lanes.
template <int kMagnitudeBits>
inline __m256 LevelValues(LevelTable table, __m256i codes) {
  const __m256 values = _mm256_permutevar8x32_ps(table.first, codes);
  if constexpr (kMagnitudeBits == 2) return values;
  const __m256i minus = _mm256_slli_epi32(codes, 31 - kMagnitudeBits);
  return _mm256_blendv_ps(values, _mm256_permutevar8x32_ps(table.others, codes),
                          Floats(minus));
}

// The values of vector `vec` of the codes.
template <int kMagnitudeBits>
inline Vec LookupLevels(LevelTable table, const LevelCodes& codes, int vec) {
  const __m256i quarters = codes.group[vec / 2];
  const int shift = vec % 2 * 16;
  return {
      LevelValues<kMagnitudeBits>(table, _mm256_srli_epi32(quarters, shift)),
      LevelValues<kMagnitudeBits>(table,
                                  _mm256_srli_epi32(quarters, shift + 8))};
}

// v with the signs of the kLanes one-bit codes that start at `codes`, if it is
// positive: minus where a bit is 0.
inline __m256 FlipZeros(__m256i shifted, __m256 v) {
  const __m256i sign = _mm256_set1_epi32(static_cast<int>(0x80000000u));
  return _mm256_xor_ps(v, Floats(_mm256_andnot_si256(shifted, sign)));
}
inline Vec WithSigns(Vec v, const uint8_t* codes) {
  uint16_t word;
  memcpy(&word, codes, sizeof(word));
  const __m256i words = _mm256_set1_epi32(word);
  // Shifts that bring the bit of each lane to the top.
  const __m256i low = _mm256_setr_epi32(24, 25, 26, 27, 28, 29, 30, 31);
  const __m256i high = _mm256_setr_epi32(16, 17, 18, 19, 20, 21, 22, 23);
  return {FlipZeros(_mm256_sllv_epi32(words, low), v.lo),
          FlipZeros(_mm256_sllv_epi32(words, high), v.hi)};
}

// The kLanes counts of kBits bits that start at `counts`.
template <int kBits>
inline Ints LoadCounts(const uint8_t* counts) {
  if constexpr (kBits == 16) {
    return {_mm256_cvtepi16_epi32(Load8(counts)),
            _mm256_cvtepi16_epi32(Load8(counts + 16))};
  } else if constexpr (kBits == 8) {
    const __m128i bytes = Load8(counts);
    return {_mm256_cvtepi8_epi32(bytes),
            _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  } else {
    const __m128i bytes =
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(counts));
    const __m128i pairs = _mm_unpacklo_epi8(bytes, bytes);
    const __m256i shifts = _mm256_setr_epi32(24, 28, 24, 28, 24, 28, 24, 28);
    const __m256i lo = _mm256_cvtepu8_epi32(pairs);
    const __m256i hi = _mm256_cvtepu8_epi32(_mm_srli_si128(pairs, 8));
    return {_mm256_srai_epi32(_mm256_sllv_epi32(lo, shifts), 28),
            _mm256_srai_epi32(_mm256_sllv_epi32(hi, shifts), 28)};
  }
}

// count * factor, NaN where the count is `not_finite`.
inline __m256 CountValues(__m256i counts, int not_finite, __m256 factor) {
  const __m256i marked =
      _mm256_cmpeq_epi32(counts, _mm256_set1_epi32(not_finite));
  return _mm256_blendv_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(counts), factor),
                          Floats(_mm256_set1_epi32(kNaNBits)), Floats(marked));
}
inline Vec CountValues(Ints counts, int not_finite, Vec factor) {
  return {CountValues(counts.lo, not_finite, factor.lo),
          CountValues(counts.hi, not_finite, factor.hi)};
}

}  // namespace
}  // namespace tf_gc::avx2
