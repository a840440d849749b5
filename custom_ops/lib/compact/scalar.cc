// The functions of functions.h for every processor: a lane at a time.

#include <cstdint>
#include <cstring>

#include "custom_ops/lib/compact/bits.h"
#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace {

inline int CountBits(uint64_t bits) { return __builtin_popcountll(bits); }

struct Mask : BitMoves {
  explicit Mask(uint64_t bits) : BitMoves(bits) {}

  static uint64_t PickEven(uint64_t word) {
    static const BitMoves even(kEvenBits);
    return even.PickOut(word);
  }
  static uint64_t PutEven(uint64_t word) {
    static const BitMoves even(kEvenBits);
    return even.PutBack(word);
  }
};

using States = uint32_t;
constexpr int kWidth = 1;

inline States LoadStates(const uint32_t* from) { return *from; }
inline void StoreStates(States x, uint32_t* to) { *to = x; }

inline int CodeStates(const uint32_t* entries, const uint8_t* symbols,
                      States* x, uint16_t* words) {
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
  *symbols = static_cast<uint8_t>(entry);
  *x = (entry >> 8) % kFrequencySum * (*x >> kFrequencyBits) +
       (entry >> (8 + kFrequencyBits));
  return *x < kLowestState;
}

inline void TakeWords(uint32_t take, const uint16_t* words, States* x) {
  if (take != 0) *x = *x << 16 | *words;
}

#include "custom_ops/lib/compact/functions.inc"

}  // namespace

const CompactFunctions& ScalarCompactFunctions() { return kCompactFunctions; }

}  // namespace tf_gc
