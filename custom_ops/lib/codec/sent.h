// How many elements are sent as something other than zero.

#pragma once

#include <cstdint>
#include <cstring>

#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// `codes` are a block's codes; counts are not codes. One bit has no code for
// zero, so that all kBlockSize elements count, in a partial block too.
inline int64_t SentInBlock(Codec codec, const uint8_t* codes) {
  const int bits = CodeBits(codec);
  if (bits == 1) return kBlockSize;
  int64_t sent = 0;
  if (bits == 8) {  // 0 is zero, and -128 is not finite
    for (int64_t i = 0; i < kBlockSize; ++i) sent += (codes[i] & 127) != 0;
    return sent;
  }
  if (InPlanes(bits)) {
    // All planes but the highest, which has the signs, have the level's number.
    for (int64_t i = 0; i < kPlaneBytes; i += sizeof(uint64_t)) {
      uint64_t any = 0;
      for (int plane = 0; plane + 1 < bits; ++plane) {
        uint64_t word;
        std::memcpy(&word, codes + plane * kPlaneBytes + i, sizeof(word));
        any |= word;
      }
      sent += __builtin_popcountll(any);
    }
    return sent;
  }
  // The codes for plus and minus have their high bit set, the others do not.
  static_assert((kCodePlus & kCodeMinus) == 0b10 &&
                ((kCodeZero | kCodeNotFinite) & 0b10) == 0);
  for (int64_t i = 0; i < CodeBytes(Codec::kTwoBitAuto);
       i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, codes + i, sizeof(word));
    sent += __builtin_popcountll(word & 0xaaaaaaaaaaaaaaaau);
  }
  return sent;
}

// The same of `count` messages that follow each other.
inline int64_t SentInMessages(Codec codec, const MessageLayout& layout,
                              const uint8_t* messages, int64_t count) {
  int64_t sent = 0;
  for (int64_t i = 0; i < count; ++i, messages += layout.size) {
    for (int64_t block = 0; block < layout.blocks; ++block) {
      sent += SentInBlock(codec, layout.Codes(messages, block));
    }
  }
  return sent;
}

}  // namespace tf_gc
