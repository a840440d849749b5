// Words of bits, and bits that are picked out of them and put back, for
// processors without instructions for it.

#pragma once

#include <cstdint>
#include <cstring>

namespace tf_gc {

inline uint64_t LoadWord(const uint8_t* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

inline void StoreWord(uint64_t word, uint8_t* to) {
  std::memcpy(to, &word, sizeof word);
}

// The first bits of bytes.
constexpr uint64_t kFirstOfBytes = 0x0101010101010101;

// A byte of ones for each byte that is not zero.
constexpr uint64_t NonzeroBytes(uint64_t bytes) {
  constexpr uint64_t kLow = 0x7f * kFirstOfBytes;
  return ((((bytes & kLow) + kLow) | bytes) >> 7 & kFirstOfBytes) * 0xff;
}

// Where the bits of a mask go if they are picked out, in six steps: step i
// moves the bits of `moves[i]` down by 1 << i (Warren, Hacker's Delight,
// "Compress").
struct BitMoves {
  uint64_t mask;
  uint64_t moves[6];

  constexpr explicit BitMoves(uint64_t bits) : mask(bits), moves() {
    uint64_t zeros_below = ~bits << 1;  // counted, for each bit, modulo 2
    for (int i = 0; i < 6; ++i) {
      uint64_t parity = zeros_below;
      for (int shift = 1; shift < 64; shift *= 2) parity ^= parity << shift;
      moves[i] = parity & bits;
      bits = (bits ^ moves[i]) | (moves[i] >> (1 << i));
      zeros_below &= ~parity;
    }
  }

  // Moves the bits of `word` that are in the mask to the lowest places.
  uint64_t PickOut(uint64_t word) const {
    word &= mask;
    for (int i = 0; i < 6; ++i) {
      const uint64_t moved = word & moves[i];
      word = (word ^ moved) | (moved >> (1 << i));
    }
    return word;
  }

  // Moves the lowest bits of `word` to the places of the mask.
  uint64_t PutBack(uint64_t word) const {
    for (int i = 5; i >= 0; --i) {
      const uint64_t moved = word << (1 << i);
      word = (word & ~moves[i]) | (moved & moves[i]);
    }
    return word & mask;
  }
};

}  // namespace tf_gc
