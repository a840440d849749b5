// 16 states of the coder in an AVX-512 register, for functions.inc. Include
// inside a target region, after <immintrin.h>; everything here is local to the
// file that includes it.

#ifndef TF_GC_CUSTOM_OPS_LIB_COMPACT_STATES_AVX512_H_
#define TF_GC_CUSTOM_OPS_LIB_COMPACT_STATES_AVX512_H_

namespace tf_gc {
namespace avx512 {
namespace {

using States = __m512i;
constexpr int kWidth = 16;

inline States LoadStates(const uint32_t* from) {
  return _mm512_loadu_si512(from);
}
inline void StoreStates(States x, uint32_t* to) { _mm512_storeu_si512(to, x); }

inline __m512i LowBits(__m512i v) {
  return _mm512_and_si512(v, _mm512_set1_epi32(kFrequencySum - 1));
}

inline __m512i LookUp(const uint32_t* entries, __m512i index) {
  // A compiler that sees that all lanes are looked up leaves out the zeros, and
  // the instruction then waits for what its register held before.
  __mmask16 all = 0xffff;
  asm("" : "+Yk"(all));
  return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), all, index,
                                     entries, 4);
}

inline int CodeStates(const uint32_t* entries, const uint8_t* symbols,
                      States* x, uint16_t* words) {
  const __m512i entry = LookUp(
      entries, _mm512_cvtepu8_epi32(
                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(symbols))));
  const __m512i frequency = LowBits(entry);
  const __m512i start = _mm512_srli_epi32(entry, kFrequencyBits);
  const __mmask16 full = _mm512_cmpge_epu32_mask(
      *x, _mm512_slli_epi32(frequency, 32 - kFrequencyBits));
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(words),
      _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(full, *x)));
  const __m512i y = _mm512_mask_srli_epi32(*x, full, *x, 16);
  // The quotient is below 2^20. A reciprocal that is too small, by 2^-23 to
  // 2^-20 after all roundings, makes it right or one too small.
  const __m512 divisor = _mm512_cvtepi32_ps(frequency);
  const __m512 rough = _mm512_rcp14_ps(divisor);
  const __m512 reciprocal = _mm512_mul_ps(
      rough, _mm512_fnmadd_ps(divisor, rough, _mm512_set1_ps(2.0f - 0x1p-21f)));
  const __m512i quotient =
      _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_cvtepu32_ps(y), reciprocal));
  const __m512i rest =
      _mm512_sub_epi32(y, _mm512_mullo_epi32(quotient, frequency));
  const __m512i next = _mm512_add_epi32(
      _mm512_add_epi32(_mm512_slli_epi32(quotient, kFrequencyBits), start),
      rest);
  *x = _mm512_mask_add_epi32(
      next, _mm512_cmpge_epu32_mask(rest, frequency), next,
      _mm512_sub_epi32(_mm512_set1_epi32(kFrequencySum), frequency));
  return _mm_popcnt_u32(full);
}

inline uint32_t DecodeStates(const uint32_t* entries, States* x,
                             uint8_t* symbols) {
  const __m512i entry = LookUp(entries, LowBits(*x));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(symbols),
                   _mm512_cvtepi32_epi8(entry));
  const __m512i frequency = LowBits(_mm512_srli_epi32(entry, 8));
  const __m512i distance = _mm512_srli_epi32(entry, 8 + kFrequencyBits);
  *x = _mm512_add_epi32(
      _mm512_mullo_epi32(frequency, _mm512_srli_epi32(*x, kFrequencyBits)),
      distance);
  return _mm512_cmplt_epu32_mask(*x, _mm512_set1_epi32(kLowestState));
}

inline void TakeWords(uint32_t take, const uint16_t* words, States* x) {
  const __mmask16 mask = static_cast<__mmask16>(take);
  const __m512i word = _mm512_maskz_expand_epi32(
      mask, _mm512_cvtepu16_epi32(
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words))));
  *x = _mm512_or_si512(_mm512_mask_slli_epi32(*x, mask, *x, 16), word);
}

}  // namespace
}  // namespace avx512
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_COMPACT_STATES_AVX512_H_
