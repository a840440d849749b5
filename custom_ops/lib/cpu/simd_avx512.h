// 16 float lanes in one AVX-512 register, for the *_simd.inc. Include inside
// a target region, after <immintrin.h>; everything here is local to the file
// that includes it.

#pragma once

namespace tf_gc::avx512 {
namespace {

using Vec = __m512;
using Mask = __mmask16;
// The values of the four codes, in each 128-bit part.
using Table = __m512;
using Ints = __m512i;

constexpr int kLanes = 16;
// Sums of this many Vec fit into the registers.
constexpr int kVecsPerSum = 8;

inline __m512i Bits(Vec v) { return _mm512_castps_si512(v); }
inline Vec Floats(__m512i v) { return _mm512_castsi512_ps(v); }

inline Vec Set(float x) { return _mm512_set1_ps(x); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Abs(Vec v) {
  return Floats(_mm512_and_si512(Bits(v), _mm512_set1_epi32(0x7fffffff)));
}

inline Vec Load(const float* from) { return _mm512_loadu_ps(from); }
inline Vec Load(const Half* from) {
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline Vec Load(const BFloat16* from) {
  const __m256i bits =
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return Floats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline void Store(Vec v, float* to) { _mm512_storeu_ps(to, v); }

// Stores the lowest byte of each lane.
inline void StoreLowBytes(Vec v, uint8_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_cvtepi32_epi8(Bits(v)));
}

constexpr int kStreamAlignment = sizeof(__m512i);

// Copies to aligned memory, past the caches.
inline void Stream(const void* from, int bytes, void* to) {
  const __m512i* source = static_cast<const __m512i*>(from);
  __m512i* target = static_cast<__m512i*>(to);
  for (int i = 0; i < bytes / kStreamAlignment; ++i) {
    _mm512_stream_si512(target + i, _mm512_load_si512(source + i));
  }
}
inline void EndStream() { _mm_sfence(); }

// Replaces every NaN by the one with the bits kNaNBits.
inline Vec WithOneNaN(Vec v) {
  const Mask nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return Floats(_mm512_mask_set1_epi32(Bits(v), nan, kNaNBits));
}

// These round to nearest even.
inline void RoundTo(Vec v, float* to) { Store(WithOneNaN(v), to); }
inline void RoundTo(Vec v, Half* to) {
  const __m256i half = _mm512_cvtps_ph(
      WithOneNaN(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
}
inline void RoundTo(Vec v, BFloat16* to) {
  const __m512i bits = Bits(WithOneNaN(v));
  const __m512i odd =
      _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

// For non-negative values, in the order of their bits: NaN is above infinity.
inline Vec MaxByBits(Vec a, Vec b) {
  return Floats(_mm512_max_epi32(Bits(a), Bits(b)));
}
inline bool AllBelowByBits(Vec v, float limit) {
  return _mm512_cmpge_epi32_mask(Bits(v), Bits(Set(limit))) == 0;
}
// The largest lane.
inline float MaxLaneByBits(Vec v) {
  return BitCast<float>(_mm512_reduce_max_epi32(Bits(v)));
}

inline Mask GreaterEqual(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
inline Mask Greater(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
// A bit for each lane, the first in the lowest.
inline uint16_t MaskBits(Mask mask) { return mask; }
inline Mask And(Mask a, Mask b) { return _kand_mask16(a, b); }
inline Mask Xor(Mask a, Mask b) { return _kxor_mask16(a, b); }
// Where the sign bit is set.
inline Mask SignMask(Vec v) { return _mm512_movepi32_mask(Bits(v)); }
// a where the mask is set, else b.
inline Vec Select(Mask mask, Vec a, Vec b) {
  return _mm512_mask_blend_ps(mask, b, a);
}

// v minus what is sent of v: `magnitude` with the sign of v where the mask is
// set, nothing elsewhere.
inline Vec Subtract(Mask mask, Vec v, Vec magnitude) {
  constexpr int kBitSelect = 0xca;  // first ? second : third
  const Vec sent = Floats(_mm512_ternarylogic_epi32(
      _mm512_set1_epi32(0x7fffffff), Bits(magnitude), Bits(v), kBitSelect));
  return _mm512_mask_sub_ps(v, mask, v, sent);
}

// The sum of the lanes in the order of TreeSum.
inline float SumLanes(Vec v) {
  const __m256 by8 =
      _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 by4 =
      _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

// One code in each lane.
inline __m512i Codes(Mask sent, Vec p) {
  return _mm512_maskz_add_epi32(sent, _mm512_set1_epi32(kCodePlus),
                                _mm512_srai_epi32(Bits(p), 31));
}

// The code bytes of 64 elements, one byte in each lane. Lane j of 128-bit part
// k has the byte of part k of register j.
inline __m512i CodeBytes(const Mask* sent, const Vec* p) {
  const __m512i words0 =
      _mm512_packs_epi32(Codes(sent[0], p[0]), Codes(sent[1], p[1]));
  const __m512i words1 =
      _mm512_packs_epi32(Codes(sent[2], p[2]), Codes(sent[3], p[3]));
  // 1 << CodeShift<2>(i) for the four elements of a byte.
  const __m512i weights = _mm512_set1_epi32(0x01041040);
  const __m512i pairs =
      _mm512_maddubs_epi16(_mm512_packs_epi16(words0, words1), weights);
  return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

// Writes the codes of a block, plus or minus by the sign of p where sent.
inline void PackCodes(const Mask* sent, const Vec* p, uint8_t* codes) {
  // Part k has the bytes of parts k of the 8 registers.
  const __m256i bytes = _mm512_cvtepi16_epi8(
      _mm512_packus_epi32(CodeBytes(sent, p), CodeBytes(sent + 4, p + 4)));
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
  const __m256i pairs = _mm256_shuffle_epi8(bytes, order);
  const __m128i parts01 = _mm256_castsi256_si128(pairs);
  const __m128i parts23 = _mm256_extracti128_si256(pairs, 1);
  __m128i* to = reinterpret_cast<__m128i*>(codes);
  _mm_storeu_si128(to, _mm_unpacklo_epi16(parts01, parts23));
  _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(parts01, parts23));
}

inline Table MakeTable(float scale) {
  constexpr int kAndXor = 0x6a;  // (first & second) ^ third
  const __m512i nonzero = _mm512_set4_epi32(-1, -1, 0, 0);
  const __m512i flip =
      _mm512_set4_epi32(0, static_cast<int>(0x80000000u), kNaNBits, 0);
  return Floats(
      _mm512_ternarylogic_epi32(nonzero, Bits(Set(scale)), flip, kAndXor));
}

// The values of the kLanes codes that start at `codes`.
inline Vec Lookup(Table table, const uint8_t* codes) {
  int word;
  memcpy(&word, codes, sizeof(word));
  const __m512i shifts = _mm512_setr_epi32(6, 4, 2, 0, 14, 12, 10, 8, 22, 20,
                                           18, 16, 30, 28, 26, 24);
  return _mm512_permutevar_ps(
      table, _mm512_srlv_epi32(_mm512_set1_epi32(word), shifts));
}

// The values of the codes of kMagnitudeBits and a sign.
using LevelTable = __m512;

template <int kMagnitudeBits>
inline LevelTable MakeLevelTable(float scale) {
  using L = Levels<kMagnitudeBits>;
  alignas(__m512) float units[kLanes] = {};
  alignas(__m512i) int32_t flips[kLanes] = {};
  uint16_t nonzero = 0;
  for (int code = 0; code <= L::kMinus + L::kCount; ++code) {
    const int number = code & L::kCount;
    units[code] = number == 0 ? 0.0f : L::Unit(number);
    flips[code] = code < L::kMinus ? 0 : INT32_MIN;
    if (number != 0) nonzero |= 1 << code;
  }
  flips[L::kNotFinite] = kNaNBits;
  const __m512i values =
      Bits(_mm512_maskz_mul_ps(nonzero, Set(scale), _mm512_load_ps(units)));
  return Floats(_mm512_xor_si512(values, _mm512_load_si512(flips)));
}

// The codes of kVecsPerSum vectors. In a group, the bytes of lane i have the
// codes of element i of each quarter, the first quarter's in the lowest one.
constexpr int kLevelGroups = 2;
struct LevelCodes {
  __m512i group[kLevelGroups];
};

// The group whose lowest bits start at `plane`.
template <int kMagnitudeBits>
inline __m512i JoinPlanes(const uint8_t* plane) {
  __m512i codes = _mm512_setzero_si512();
  for (int i = 0; i <= kMagnitudeBits; ++i, plane += kPlaneBytes) {
    uint64_t bits;
    memcpy(&bits, plane, sizeof(bits));
    codes = _mm512_mask_add_epi8(codes, bits, codes, _mm512_set1_epi8(1 << i));
  }
  // A 4 by 4 matrix of dwords is transposed, then one of bytes in each part.
  const __m512i columns =
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(columns, codes), bytes);
}

// The values of vector `vec` of the codes.
template <int kMagnitudeBits>
inline Vec LookupLevels(LevelTable table, const LevelCodes& codes, int vec) {
  const unsigned shift = static_cast<unsigned>(vec % 4 * 8);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(codes.group[vec / 4], shift),
                               table);
}

// v with the signs of the kLanes one-bit codes that start at `codes`, if it is
// positive: minus where a bit is 0.
inline Vec WithSigns(Vec v, const uint8_t* codes) {
  constexpr int kXorOfAndNot = 0xd2;  // first ^ (~second & third)
  uint16_t word;
  memcpy(&word, codes, sizeof(word));
  // Shifts that bring the bit of each lane to the top.
  const __m512i shifts = _mm512_setr_epi32(24, 25, 26, 27, 28, 29, 30, 31, 16,
                                           17, 18, 19, 20, 21, 22, 23);
  return Floats(_mm512_ternarylogic_epi32(
      Bits(v), _mm512_sllv_epi32(_mm512_set1_epi32(word), shifts),
      _mm512_set1_epi32(static_cast<int>(0x80000000u)), kXorOfAndNot));
}

// The kLanes counts of kBits bits that start at `counts`.
template <int kBits>
inline Ints LoadCounts(const uint8_t* counts) {
  const __m128i* from = reinterpret_cast<const __m128i*>(counts);
  if constexpr (kBits == 16) {
    return _mm512_cvtepi16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  } else if constexpr (kBits == 8) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(from));
  } else {
    const __m128i bytes = _mm_loadl_epi64(from);
    const __m512i pairs = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes));
    const __m512i shifts =
        _mm512_broadcast_i32x4(_mm_setr_epi32(24, 28, 24, 28));
    return _mm512_srai_epi32(_mm512_sllv_epi32(pairs, shifts), 28);
  }
}

// count * factor, NaN where the count is `not_finite`.
inline Vec CountValues(Ints counts, int not_finite, Vec factor) {
  const Mask marked =
      _mm512_cmpeq_epi32_mask(counts, _mm512_set1_epi32(not_finite));
  const Vec values = Mul(_mm512_cvtepi32_ps(counts), factor);
  return Floats(_mm512_mask_set1_epi32(Bits(values), marked, kNaNBits));
}

}  // namespace
}  // namespace tf_gc::avx512
