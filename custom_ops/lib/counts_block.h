// The definition of counts, the sum of messages with a fixed threshold in whole
// numbers: how a block is counted and what a count stands for.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#ifndef TF_GC_CUSTOM_OPS_LIB_COUNTS_BLOCK_H_
#define TF_GC_CUSTOM_OPS_LIB_COUNTS_BLOCK_H_

#include <cstdint>
#include <cstring>

#include "custom_ops/lib/two_bit_block.h"
#include "custom_ops/lib/wire.h"

namespace tf_gc {

// Counts the four elements of code byte i over `replicas` messages, and writes
// their counts to where they belong in `counts`.
TF_GC_HOST_DEVICE inline void CountByte(const uint8_t* const* codes,
                                        int64_t replicas, int64_t i, int bits,
                                        uint8_t* counts) {
  constexpr int kLowBits = 0b01010101;
  constexpr int kFields = static_cast<int>(kCodesPerByte);
  // The sums are in 16 bits each: every message adds 1 plus its code's value.
  uint64_t sums = 0;
  int not_finite = 0;
  for (int64_t r = 0; r < replicas; ++r) {
    const int low = codes[r][i];
    const int high = low >> 1;
    not_finite |= low & ~high;
    const uint64_t added = (high & low & kLowBits) << 1 | (~high & kLowBits);
    sums += (added >> 6 | added << 12 | added << 30 | added << 48) &
            0x0003000300030003u;
  }
  uint16_t count[kFields];
  for (int j = 0; j < kFields; ++j) {
    const bool marked = not_finite >> CodeShift(j) & 1;
    count[j] = static_cast<uint16_t>(
        marked ? CountNotFinite(bits)
               : static_cast<int>(sums >> 16 * j & 0xffffu) -
                     static_cast<int>(replicas));
  }
  if (bits == 16) {
    memcpy(counts + i * sizeof(count), count, sizeof(count));
  } else if (bits == 8) {
    for (int j = 0; j < kFields; ++j) {
      counts[i * kFields + j] = static_cast<uint8_t>(count[j]);
    }
  } else {
    for (int j = 0; j < kFields; j += 2) {
      counts[i * 2 + j / 2] =
          static_cast<uint8_t>(count[j] << 4 | (count[j + 1] & 0b1111));
    }
  }
}

// The count of element i.
template <int kBits>
TF_GC_HOST_DEVICE inline int CountAt(const uint8_t* counts, int64_t i) {
  if constexpr (kBits == 16) {
    int16_t count;
    memcpy(&count, counts + 2 * i, sizeof(count));
    return count;
  } else if constexpr (kBits == 8) {
    return static_cast<int8_t>(counts[i]);
  } else {
    const int field = counts[i / 2] >> (i % 2 == 0 ? 4 : 0) & 0b1111;
    return (field ^ 0b1000) - 0b1000;
  }
}

// The value that a count stands for.
template <int kBits>
TF_GC_HOST_DEVICE inline float CountValue(int count, float threshold) {
  return count == CountNotFinite(kBits) ? BitCast<float>(kNaNBits)
                                        : static_cast<float>(count) * threshold;
}

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_COUNTS_BLOCK_H_
