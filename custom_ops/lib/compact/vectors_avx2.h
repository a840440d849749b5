// AVX2 for functions.inc: 8 states of the coder in a register.
// Include inside a target region, after <immintrin.h>; everything here is local
// to the file that includes it.

#pragma once

namespace tf_gc::avx2 {
namespace {

using States = __m256i;
using CodingEntries = const uint32_t*;
constexpr int kWidth = 8;

// For each set of lanes, where they go if they are moved to the lowest places,
// and which of the lowest places go to them.
struct LaneMoves {
  alignas(8) uint8_t down[256][8];
  alignas(8) uint8_t up[256][8];

  constexpr LaneMoves() : down(), up() {
    for (int set = 0; set < 256; ++set) {
      int place = 0;
      for (int lane = 0; lane < 8; ++lane) {
        if ((set >> lane & 1) == 0) continue;
        down[set][place] = static_cast<uint8_t>(lane);
        up[set][lane] = static_cast<uint8_t>(place);
        ++place;
      }
    }
  }
};
constexpr LaneMoves kLaneMoves;

inline __m256i Move(__m256i v, const uint8_t* moves) {
  return _mm256_permutevar8x32_epi32(
      v, _mm256_cvtepu8_epi32(
             _mm_loadl_epi64(reinterpret_cast<const __m128i*>(moves))));
}

inline States LoadStates(const uint32_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline void StoreStates(States x, uint32_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
}

inline __m256i LowBits(__m256i v) {
  return _mm256_and_si256(v, _mm256_set1_epi32(kFrequencySum - 1));
}

inline __m256i LookUp(const uint32_t* entries, __m256i index) {
  // A compiler that sees that all lanes are looked up leaves out the zeros, and
  // the instruction then waits for what its register held before.
  __m256i all = _mm256_set1_epi32(-1);
  asm("" : "+x"(all));
  return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(),
                                     reinterpret_cast<const int*>(entries),
                                     index, all, 4);
}

inline uint32_t Lanes(__m256i all_or_nothing) {
  return static_cast<uint32_t>(
      _mm256_movemask_ps(_mm256_castsi256_ps(all_or_nothing)));
}

// Writes the low 16 bits of each lane.
inline void StoreLow16(__m256i v, uint16_t* to) {
  const __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
  const __m256i packed =
      _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0b1000);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_castsi256_si128(packed));
}

inline __m256 FloatOfUnsigned(__m256i v) {
  const __m256 wrapped = _mm256_and_ps(
      _mm256_castsi256_ps(_mm256_srai_epi32(v, 31)), _mm256_set1_ps(0x1p32f));
  return _mm256_add_ps(_mm256_cvtepi32_ps(v), wrapped);
}

inline int CodeStates(CodingEntries entries, const uint8_t* symbols, States* x,
                      uint16_t* words) {
  const __m256i entry = LookUp(
      entries, _mm256_cvtepu8_epi32(
                   _mm_loadl_epi64(reinterpret_cast<const __m128i*>(symbols))));
  const __m256i frequency = LowBits(entry);
  const __m256i start = _mm256_srli_epi32(entry, kFrequencyBits);
  const __m256i limit = _mm256_slli_epi32(frequency, 32 - kFrequencyBits);
  const __m256i full = _mm256_cmpeq_epi32(_mm256_max_epu32(*x, limit), *x);
  const uint32_t lanes = Lanes(full);
  StoreLow16(Move(*x, kLaneMoves.down[lanes]), words);
  const __m256i y = _mm256_blendv_epi8(*x, _mm256_srli_epi32(*x, 16), full);
  // The quotient is below 2^20. A reciprocal that is too small, by 2^-23 to
  // 2^-20 after all roundings, makes it right or one too small.
  const __m256 divisor = _mm256_cvtepi32_ps(frequency);
  const __m256 rough = _mm256_rcp_ps(divisor);
  const __m256 reciprocal =
      _mm256_mul_ps(rough, _mm256_sub_ps(_mm256_set1_ps(2.0f - 0x1p-21f),
                                         _mm256_mul_ps(divisor, rough)));
  const __m256i quotient =
      _mm256_cvttps_epi32(_mm256_mul_ps(FloatOfUnsigned(y), reciprocal));
  const __m256i rest =
      _mm256_sub_epi32(y, _mm256_mullo_epi32(quotient, frequency));
  const __m256i next = _mm256_add_epi32(
      _mm256_add_epi32(_mm256_slli_epi32(quotient, kFrequencyBits), start),
      rest);
  const __m256i others =
      _mm256_sub_epi32(_mm256_set1_epi32(kFrequencySum), frequency);
  *x = _mm256_add_epi32(
      next, _mm256_andnot_si256(_mm256_cmpgt_epi32(frequency, rest), others));
  return _mm_popcnt_u32(lanes);
}

inline uint32_t DecodeStates(const uint32_t* entries, States* x,
                             uint8_t* symbols) {
  const __m256i entry = LookUp(entries, LowBits(*x));
  const __m256i bytes =
      _mm256_shuffle_epi8(entry, _mm256_set1_epi32(0x0c080400));
  const uint64_t both = static_cast<uint32_t>(_mm256_extract_epi32(bytes, 0)) |
                        static_cast<uint64_t>(static_cast<uint32_t>(
                            _mm256_extract_epi32(bytes, 4)))
                            << 32;
  std::memcpy(symbols, &both, sizeof both);
  const __m256i frequency = LowBits(_mm256_srli_epi32(entry, 8));
  const __m256i distance = _mm256_srli_epi32(entry, 8 + kFrequencyBits);
  *x = _mm256_add_epi32(
      _mm256_mullo_epi32(frequency, _mm256_srli_epi32(*x, kFrequencyBits)),
      distance);
  return Lanes(
      _mm256_cmpeq_epi32(_mm256_srli_epi32(*x, 16), _mm256_setzero_si256()));
}

inline void TakeWords(uint32_t take, const uint16_t* words, States* x) {
  const __m256i low =
      _mm256_cmpeq_epi32(_mm256_srli_epi32(*x, 16), _mm256_setzero_si256());
  const __m256i word = Move(_mm256_cvtepu16_epi32(_mm_loadu_si128(
                                reinterpret_cast<const __m128i*>(words))),
                            kLaneMoves.up[take]);
  const __m256i taken = _mm256_or_si256(_mm256_slli_epi32(*x, 16), word);
  *x = _mm256_blendv_epi8(*x, taken, low);
}

}  // namespace
}  // namespace tf_gc::avx2
