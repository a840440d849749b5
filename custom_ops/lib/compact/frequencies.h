// The frequencies of symbols, and what coding and decoding look up.

#pragma once

#include <cstdint>

#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {

// The packer counts the high bytes of the magnitudes of the scales of blocks 0,
// kSampledBlocks, 2 * kSampledBlocks and so on, whether their segments are
// coded or not. The number is odd, so that it does not keep step with the rows
// of a matrix.
constexpr int64_t kSampledBlocks = 7;

// Which period a segment has is decided by every kSampledTiles-th of the tiles
// that each of some periods would give it, not paired and not sorted by scale,
// from the first on: by the sum of RunCost() over all runs in these tiles, less
// its sum over the halves of the same blocks. The period with the least
// difference is chosen, or the first one of several, if it is below 0, and
// otherwise period 0.
constexpr int64_t kSampledTiles = 4;
constexpr int kMostPeriods = 4;

// The periods to choose from, each from 1 to kSegmentBlocks.
struct Periods {
  int count;
  int32_t values[kMostPeriods];
};

// Whether these may be Periods.
template <typename Integer>
constexpr bool ArePeriods(const Integer* values, int64_t count) {
  if (count < 0 || count > kMostPeriods) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < 1 || values[i] > kSegmentBlocks) return false;
  }
  return true;
}

// A measure of the bits that a run's codes take, given how many of them are not
// zero, and how many of these have the sign 1.
constexpr int RunCost(int nonzeros, int signs) {
  const int zeros = static_cast<int>(kRun) - nonzeros;
  const int others = nonzeros - signs;
  return (nonzeros < zeros ? nonzeros : zeros) +
         (signs < others ? signs : others);
}

// Whether the runs of a segment of `blocks` blocks are paired: if pairs are of
// one column.
constexpr bool IsPaired(int64_t blocks, int64_t period) {
  return period > 0 && blocks / period >= 2 * kRun;
}

// The kind of `bits` bits of a run, or of a pair of runs; `ones` of them are 1.
// They are not inverted if there are as many ones as zeros. They are of class 1
// or 2 if at most kMostOfFew or kMostOfSome 256ths of them are 1: with exactly
// this share, the next class would take as many bits.
constexpr int kMostOfFew = 34;
constexpr int kMostOfSome = 92;
constexpr int KindOf(int ones, int bits) {
  // In this way there are no branches, which no processor could predict.
  const int inverted = 2 * ones > bits ? 1 : 0;
  const int rest = inverted != 0 ? bits - ones : ones;
  const int of_class = (rest > 0 ? 1 : 0) +
                       (256 * rest > kMostOfFew * bits ? 1 : 0) +
                       (256 * rest > kMostOfSome * bits ? 1 : 0);
  return 2 * of_class + (of_class == kMixed ? 0 : inverted);
}

// The byte for `count` on the wire, where `most` is the largest count of a
// plane's kinds.
constexpr uint8_t CountByte(uint32_t count, uint32_t most) {
  return most == 0 ? 0 : static_cast<uint8_t>((count * 255 + most - 1) / most);
}

// The frequency of a symbol that was counted `count` times out of `total`. It
// is at least 1, because a symbol that was not counted may still occur, and the
// rest is shared in proportion to the counts, rounded down.
inline uint32_t Frequency(int symbols, uint64_t count, uint64_t total) {
  const uint64_t shared = kFrequencySum - symbols;
  return 1 + (total == 0 ? 0 : static_cast<uint32_t>(count * shared / total));
}

// Makes frequencies of counts. The rest of kFrequencySum goes to the symbol
// that occurs most, or to the first one of several.
inline void Normalize(const uint32_t* counts, int symbols,
                      uint16_t* frequencies) {
  uint64_t total = 0;
  int most = 0;
  for (int s = 0; s < symbols; ++s) {
    total += counts[s];
    if (counts[s] > counts[most]) most = s;
  }
  uint32_t sum = 0;
  for (int s = 0; s < symbols; ++s) {
    frequencies[s] =
        static_cast<uint16_t>(Frequency(symbols, counts[s], total));
    sum += frequencies[s];
  }
  frequencies[most] =
      static_cast<uint16_t>(frequencies[most] + (kFrequencySum - sum));
}

// The frequencies of bytes of bits with a chance below 128, as compact_wire.h
// says.
struct ByteTable {
  uint16_t frequencies[kByteSymbols];

  explicit ByteTable(uint64_t chance) : frequencies() {
    constexpr uint64_t kShared = kFrequencySum - kByteSymbols;
    uint32_t rest = kFrequencySum;
    for (int byte = 0; byte < kByteSymbols; ++byte) {
      uint64_t weight = 1;
      for (int i = 0; i < 8; ++i) {
        weight *= byte >> i & 1 ? chance : 256 - chance;
      }
      frequencies[byte] =
          static_cast<uint16_t>(1 + ((weight >> 16) * kShared >> 48));
      rest -= frequencies[byte];
    }
    frequencies[0] = static_cast<uint16_t>(frequencies[0] + rest);
  }
};

// The frequencies of a plane's kinds, from their counts on the wire.
struct KindTable {
  uint16_t frequencies[kKinds];

  explicit KindTable(const uint8_t* counts) : frequencies() {
    uint32_t numbers[kKinds];
    for (int kind = 0; kind < kKinds; ++kind) numbers[kind] = counts[kind];
    Normalize(numbers, kKinds, frequencies);
  }
};

// Whether a decoder may use them.
inline bool AreFrequencies(const uint16_t* frequencies, int symbols) {
  uint32_t sum = 0;
  for (int s = 0; s < symbols; ++s) {
    if (frequencies[s] == 0) return false;
    sum += frequencies[s];
  }
  return sum == kFrequencySum;
}

// A symbol as a coder needs it: its frequency, and above that its start.
constexpr uint32_t CodingEntry(uint32_t frequency, uint32_t start) {
  return frequency | start << kFrequencyBits;
}

// The entry for the low kFrequencyBits bits of a state: the symbol in 8 bits,
// its frequency, and above that the distance from its start.
constexpr uint32_t DecodingEntry(uint32_t symbol, uint32_t frequency,
                                 uint32_t distance) {
  return symbol | frequency << 8 | distance << (8 + kFrequencyBits);
}

struct CodingTable {
  uint32_t entries[kByteSymbols];

  // `table` has the frequencies.
  template <typename Table>
  explicit CodingTable(const Table& table) : entries() {
    uint32_t start = 0;
    uint32_t* entry = entries;
    for (const uint16_t frequency : table.frequencies) {
      *entry++ = CodingEntry(frequency, start);
      start += frequency;
    }
  }
};

struct DecodingTable {
  uint32_t entries[kFrequencySum];

  // `table` has frequencies such as AreFrequencies() accepts.
  template <typename Table>
  explicit DecodingTable(const Table& table) {
    uint32_t* entry = entries;
    uint32_t symbol = 0;
    for (const uint32_t frequency : table.frequencies) {
      for (uint32_t i = 0; i < frequency; ++i) {
        *entry++ = DecodingEntry(symbol, frequency, i);
      }
      ++symbol;
    }
  }
};

}  // namespace tf_gc
