// AVX-512 for functions.inc: 32 states of the coder in two
// registers. Include inside a target region, after <immintrin.h>; everything
// here is local to the file that includes it.

#pragma once

namespace tf_gc::avx512 {
namespace {

struct States {
  __m512i halves[2];
};
constexpr int kWidth = 32;

inline States LoadStates(const uint32_t* from) {
  return {{_mm512_loadu_si512(from), _mm512_loadu_si512(from + 16)}};
}
inline void StoreStates(const States& x, uint32_t* to) {
  _mm512_storeu_si512(to, x.halves[0]);
  _mm512_storeu_si512(to + 16, x.halves[1]);
}

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

// A table of 256 numbers of 16 bits, in registers: to permute them takes a
// fraction of the time of a gather.
class Numbers {
 public:
  // The bits of some entries from `shift` on.
  Numbers(const uint32_t* entries, int shift) {
    for (int i = 0; i < kParts; ++i) {
      const __m512i low = _mm512_loadu_si512(entries + 32 * i);
      const __m512i high = _mm512_loadu_si512(entries + 32 * i + 16);
      parts_[i] = _mm512_inserti64x4(_mm512_castsi256_si512(Low16(low, shift)),
                                     Low16(high, shift), 1);
    }
  }

  // The numbers of 32 symbols in 16 bits each.
  __m512i Of(__m512i symbols) const {
    const __mmask32 odd = _mm512_movepi16_mask(_mm512_slli_epi16(symbols, 9));
    const __mmask32 upper = _mm512_movepi16_mask(_mm512_slli_epi16(symbols, 8));
    const auto quarter = [&](int i) {
      return _mm512_permutex2var_epi16(parts_[2 * i], symbols,
                                       parts_[2 * i + 1]);
    };
    return _mm512_mask_blend_epi16(
        upper, _mm512_mask_blend_epi16(odd, quarter(0), quarter(1)),
        _mm512_mask_blend_epi16(odd, quarter(2), quarter(3)));
  }

 private:
  static constexpr int kParts = 8;

  static __m256i Low16(__m512i entries, int shift) {
    return _mm512_cvtepi32_epi16(
        LowBits(_mm512_srl_epi32(entries, _mm_cvtsi32_si128(shift))));
  }

  __m512i parts_[kParts];
};

struct CodingEntries {
  Numbers frequencies;
  Numbers starts;

  explicit CodingEntries(const uint32_t* entries)
      : frequencies(entries, 0), starts(entries, kFrequencyBits) {}
};

// The lower or the upper half of 32 numbers of 16 bits.
template <int kHalf>
__m512i Widened(__m512i numbers) {
  return _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(numbers, kHalf));
}

inline int CodeHalf(__m512i frequency, __m512i start, __m512i* x,
                    uint16_t* words) {
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

inline int CodeStates(const CodingEntries& entries, const uint8_t* symbols,
                      States* x, uint16_t* words) {
  const __m512i index = _mm512_cvtepu8_epi16(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(symbols)));
  const __m512i frequencies = entries.frequencies.Of(index);
  const __m512i starts = entries.starts.Of(index);
  const int count = CodeHalf(Widened<0>(frequencies), Widened<0>(starts),
                             &x->halves[0], words);
  return count + CodeHalf(Widened<1>(frequencies), Widened<1>(starts),
                          &x->halves[1], words + count);
}

inline uint32_t DecodeHalf(const uint32_t* entries, __m512i* x,
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

inline uint32_t DecodeStates(const uint32_t* entries, States* x,
                             uint8_t* symbols) {
  // Both masks in one by an instruction: if GCC 12 keeps a mask of 16 bits on
  // the stack, it may read 32 bits of it.
  const __mmask16 low =
      static_cast<__mmask16>(DecodeHalf(entries, &x->halves[0], symbols));
  return _mm512_kunpackw(DecodeHalf(entries, &x->halves[1], symbols + 16), low);
}

inline void TakeHalf(uint32_t take, const uint16_t* words, __m512i* x) {
  const __mmask16 mask = static_cast<__mmask16>(take);
  const __m512i word = _mm512_maskz_expand_epi32(
      mask, _mm512_cvtepu16_epi32(
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words))));
  *x = _mm512_or_si512(_mm512_mask_slli_epi32(*x, mask, *x, 16), word);
}

inline void TakeWords(uint32_t take, const uint16_t* words, States* x) {
  TakeHalf(take & 0xffff, words, &x->halves[0]);
  TakeHalf(take >> 16, words + _mm_popcnt_u32(take & 0xffff), &x->halves[1]);
}

// As in bytes.inc, whose vectors would take several times as long.
inline void TakeBytes(const uint8_t* codes, uint64_t* planes) {
  for (int half = 0; half < kHalves; ++half) {
    const __m512i bytes = _mm512_loadu_si512(codes + half * kRun);
    const __m512i magnitudes = _mm512_abs_epi8(bytes);
    for (int i = 0; i < 7; ++i) {
      planes[kHalves * i + half] = _mm512_test_epi8_mask(
          magnitudes, _mm512_set1_epi8(static_cast<char>(1 << i)));
    }
    planes[kHalves * 7 + half] = _mm512_movepi8_mask(bytes);
  }
}

inline void PutBytes(const uint64_t* planes, uint8_t* codes) {
  for (int half = 0; half < kHalves; ++half) {
    __m512i bytes = _mm512_setzero_si512();
    for (int i = 0; i < 7; ++i) {
      bytes = _mm512_or_si512(
          bytes, _mm512_maskz_set1_epi8(planes[kHalves * i + half],
                                        static_cast<char>(1 << i)));
    }
    bytes = _mm512_mask_sub_epi8(bytes, planes[kHalves * 7 + half],
                                 _mm512_setzero_si512(), bytes);
    _mm512_storeu_si512(codes + half * kRun, bytes);
  }
}

}  // namespace
}  // namespace tf_gc::avx512
