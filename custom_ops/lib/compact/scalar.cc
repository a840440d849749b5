// The functions of functions.h for every processor: a lane at a time.

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "custom_ops/lib/compact/bits.h"
#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace {

#include "custom_ops/lib/compact/mask_words.inc"

// As in planes_avx2.inc.
constexpr Mask kEvenBits(0x5555555555555555);

inline void TakePlanes(const uint8_t* codes, uint64_t* planes) {
  for (int half = 0; half < kHalves; ++half) {
    const uint64_t first = LoadWord(codes + half * 16);
    const uint64_t second = LoadWord(codes + half * 16 + 8);
    planes[half] =
        kEvenBits.PickOut(first >> 1) | kEvenBits.PickOut(second >> 1) << 32;
    planes[kHalves + half] =
        kEvenBits.PickOut(first) | kEvenBits.PickOut(second) << 32;
  }
}

inline void PutPlanes(const uint64_t* planes, uint8_t* codes) {
  for (int half = 0; half < kHalves; ++half) {
    for (int part = 0; part < 2; ++part) {
      const uint64_t magnitudes = planes[half] >> 32 * part;
      const uint64_t signs = planes[kHalves + half] >> 32 * part;
      StoreWord(kEvenBits.PutBack(magnitudes) << 1 | kEvenBits.PutBack(signs),
                codes + half * 16 + part * 8);
    }
  }
}

using States = uint32_t;
using CodingEntries = const uint32_t*;
constexpr int kWidth = 1;

inline States LoadStates(const uint32_t* from) { return *from; }
inline void StoreStates(States x, uint32_t* to) { *to = x; }

// Writes the lane's word, and returns whether it is one of the message's.
inline int CodeStates(CodingEntries entries, const uint8_t* symbols, States* x,
                      uint16_t* words) {
  const uint32_t frequency = entries[*symbols] % kFrequencySum;
  const uint32_t start = entries[*symbols] >> kFrequencyBits;
  // A state stays below 2^32 if it is below this when its byte is coded.
  const bool full = *x >= frequency << (32 - kFrequencyBits);
  *words = static_cast<uint16_t>(*x);
  if (full) *x >>= 16;
  *x = (*x / frequency << kFrequencyBits) + *x % frequency + start;
  return full;
}

inline uint32_t DecodeStates(const uint32_t* entries, States* x,
                             uint8_t* symbols) {
  const uint32_t entry = entries[*x % kFrequencySum];
  *x = (entry >> 8) % kFrequencySum * (*x >> kFrequencyBits) +
       (entry >> (8 + kFrequencyBits));
  *symbols = static_cast<uint8_t>(entry);
  return *x < kLowestState;
}

inline void TakeWords(uint32_t take, const uint16_t* words, States* x) {
  if (take != 0) *x = *x << 16 | *words;
}

#include "custom_ops/lib/compact/bytes.inc"
// Uses what is defined above.
#include "custom_ops/lib/compact/functions.inc"

}  // namespace

const CompactFunctions& ScalarCompactFunctions() { return kCompactFunctions; }

}  // namespace tf_gc
