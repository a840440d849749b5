// The functions of functions.h for every processor: a lane at a time.

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "custom_ops/lib/codec/bits.h"
#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace {

inline int CountBits(uint64_t bits) { return __builtin_popcountll(bits); }

inline uint64_t FirstBits(uint64_t word, int count) {
  return count == 0 ? 0 : word & ~uint64_t{0} >> (64 - count);
}

using Mask = BitMoves;

using States = uint32_t;
using CodingEntries = const uint32_t*;
constexpr int kWidth = 1;

inline States LoadStates(const uint32_t* from) { return *from; }
inline void StoreStates(States x, uint32_t* to) { *to = x; }

inline int CodeStates(CodingEntries entries, const uint8_t* symbols, States* x,
                      uint16_t* words) {
  return CodeSymbol(entries[*symbols], x, words);
}

inline uint32_t DecodeStates(const uint32_t* entries, States* x,
                             uint8_t* symbols) {
  *symbols = DecodeSymbol(entries[*x % kFrequencySum], x);
  return *x < kLowestState;
}

inline void TakeWords(uint32_t take, const uint16_t* words, States* x) {
  if (take != 0) *x = *x << 16 | *words;
}

#include "custom_ops/lib/compact/functions.inc"

}  // namespace

const CompactFunctions& ScalarCompactFunctions() { return kCompactFunctions; }

}  // namespace tf_gc
