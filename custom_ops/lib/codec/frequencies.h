// The frequencies of symbols, what coding and decoding look up, and the step of
// a lane: on the CPU and in CUDA kernels.

#ifndef TF_GC_CUSTOM_OPS_LIB_CODEC_FREQUENCIES_H_
#define TF_GC_CUSTOM_OPS_LIB_CODEC_FREQUENCIES_H_

#include <cstdint>

#include "custom_ops/lib/numbers/host_device.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {

// The packer counts the symbols of blocks 0, kSampledBlocks, 2 * kSampledBlocks
// and so on, whether their segments are coded or not: of each the high byte of
// its scale's magnitude, and, if it IsFilled(), the bytes of its nonzero map
// and its rare bits. The number is odd, so that it does not keep step with
// the rows of a matrix.
constexpr int64_t kSampledBlocks = 7;

// The frequency of a symbol that was counted `count` times out of `total`. It
// is at least 1, because a symbol that was not counted may still occur, and the
// rest is shared in proportion to the counts, rounded down.
TF_GC_HOST_DEVICE inline uint32_t Frequency(int symbols, uint64_t count,
                                            uint64_t total) {
  const uint64_t shared = kFrequencySum - symbols;
  return 1 + (total == 0 ? 0 : static_cast<uint32_t>(count * shared / total));
}

// Makes frequencies of counts. What Frequency() leaves of kFrequencySum goes to
// the symbol that occurs most, or to the first one of several.
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

// What a packer counts in the blocks that it samples.
struct SymbolCounts {
  uint32_t map[kMapSymbols];
  uint64_t rare;  // bits, if the codec HasRareBits()
  uint64_t ones;  // of them
};

// The chance of a rare bit to be 1, in 256ths, of which `ones` out of
// `rare` were: the nearest one that there is.
TF_GC_HOST_DEVICE inline uint64_t ChanceOf(uint64_t ones, uint64_t rare) {
  if (rare == 0) return 128;
  const uint64_t chance = (256 * ones + rare / 2) / rare;
  return chance < 1 ? 1 : chance > 255 ? 255 : chance;
}

// The frequencies of bytes of rare bits, as compact_wire.h says.
class RareFrequencies {
 public:
  TF_GC_HOST_DEVICE explicit RareFrequencies(uint64_t chance)
      : of_ones_(), most_(chance > 128 ? 0xff : 0), rest_(kFrequencySum) {
    constexpr uint32_t kBytes[9] = {1, 8, 28, 56, 70, 56, 28, 8, 1};
    constexpr uint64_t kShared = kFrequencySum - kRareSymbols;
    for (int ones = 0; ones <= 8; ++ones) {
      uint64_t weight = 1;
      for (int i = 0; i < 8; ++i) weight *= i < ones ? chance : 256 - chance;
      of_ones_[ones] =
          1 + static_cast<uint32_t>((weight >> 16) * kShared >> 48);
      rest_ -= kBytes[ones] * of_ones_[ones];
    }
  }

  TF_GC_HOST_DEVICE uint32_t Of(int byte) const {
    int ones = 0;
    for (int i = 0; i < 8; ++i) ones += byte >> i & 1;
    return of_ones_[ones] + (byte == most_ ? rest_ : 0);
  }

 private:
  uint32_t of_ones_[9];
  int most_;
  uint32_t rest_;  // which that byte has as well
};

// All of them.
struct RareTable {
  uint16_t frequencies[kRareSymbols];

  explicit RareTable(uint64_t chance) {
    const RareFrequencies of(chance);
    for (int byte = 0; byte < kRareSymbols; ++byte) {
      frequencies[byte] = static_cast<uint16_t>(of.Of(byte));
    }
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
TF_GC_HOST_DEVICE constexpr uint32_t CodingEntry(uint32_t frequency,
                                                 uint32_t start) {
  return frequency | start << kFrequencyBits;
}

// What the low kFrequencyBits bits of a state mean: the symbol in 8 bits, its
// frequency, and above that the distance from its start.
TF_GC_HOST_DEVICE constexpr uint32_t DecodingEntry(uint32_t symbol,
                                                   uint32_t frequency,
                                                   uint32_t distance) {
  return symbol | frequency << 8 | distance << (8 + kFrequencyBits);
}

// Codes a symbol, given its CodingEntry(). Writes the lane's word, and returns
// whether it is one of the message's.
TF_GC_HOST_DEVICE inline bool CodeSymbol(uint32_t entry, uint32_t* state,
                                         uint16_t* word) {
  const uint32_t frequency = entry % kFrequencySum;
  const uint32_t start = entry >> kFrequencyBits;
  uint32_t x = *state;
  // A state stays below 2^32 if it is below this when its byte is coded.
  const bool full = x >= frequency << (32 - kFrequencyBits);
  *word = static_cast<uint16_t>(x);
  if (full) x >>= 16;
  *state = (x / frequency << kFrequencyBits) + x % frequency + start;
  return full;
}

// Decodes a symbol, given the DecodingEntry() of the state's low bits. The lane
// takes a word then if its state is below kLowestState.
TF_GC_HOST_DEVICE inline uint8_t DecodeSymbol(uint32_t entry, uint32_t* state) {
  *state = (entry >> 8) % kFrequencySum * (*state >> kFrequencyBits) +
           (entry >> (8 + kFrequencyBits));
  return static_cast<uint8_t>(entry);
}

struct CodingTable {
  uint32_t entries[kMapSymbols];

  CodingTable(const uint16_t* frequencies, int symbols) : entries() {
    uint32_t start = 0;
    for (int s = 0; s < symbols; ++s) {
      entries[s] = CodingEntry(frequencies[s], start);
      start += frequencies[s];
    }
  }
};

struct DecodingTable {
  uint32_t entries[kFrequencySum];

  // `frequencies` are such as AreFrequencies() accepts.
  DecodingTable(const uint16_t* frequencies, int symbols) {
    uint32_t* entry = entries;
    for (int s = 0; s < symbols; ++s) {
      const uint32_t frequency = frequencies[s];
      for (uint32_t i = 0; i < frequency; ++i) {
        *entry++ = DecodingEntry(static_cast<uint32_t>(s), frequency, i);
      }
    }
  }
};

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CODEC_FREQUENCIES_H_
