// The definition of counts, the sum of messages of a fixed codec in whole
// numbers: where a count is and what it stands for.
//
// This header is plain C++ that nvcc and the host compiler both accept.

#pragma once

#include <cstdint>
#include <cstring>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// The count of an element from the sum over `replicas` of 1 plus its value.
// `marked` where a replica says "not finite".
TF_GC_HOST_DEVICE inline uint16_t CountOf(int sum, int64_t replicas,
                                          bool marked, int bits) {
  return static_cast<uint16_t>(marked ? CountNotFinite(bits)
                                      : sum - static_cast<int>(replicas));
}

// Stores the counts of the kFields elements of code byte i where they belong in
// `counts`.
template <int kFields>
TF_GC_HOST_DEVICE inline void StoreCounts(const uint16_t* count, int64_t i,
                                          int bits, uint8_t* counts) {
  if (bits == 16) {
    memcpy(counts + i * kFields * 2, count, kFields * 2);
  } else if (bits == 8) {
    for (int j = 0; j < kFields; ++j) {
      counts[i * kFields + j] = static_cast<uint8_t>(count[j]);
    }
  } else {
    for (int j = 0; j < kFields; j += 2) {
      counts[(i * kFields + j) / 2] =
          static_cast<uint8_t>(count[j] << 4 | (count[j + 1] & 0b1111));
    }
  }
}

// The count in the low bits of `field`.
template <int kBits>
TF_GC_HOST_DEVICE inline int CountInField(uint32_t field) {
  constexpr uint32_t kSign = 1u << (kBits - 1);
  const uint32_t bits = field & (2 * kSign - 1);
  return static_cast<int>(bits ^ kSign) - static_cast<int>(kSign);
}

// The count of element i.
template <int kBits>
TF_GC_HOST_DEVICE inline int CountAt(const uint8_t* counts, int64_t i) {
  if constexpr (kBits == 16) {
    uint16_t field;
    memcpy(&field, counts + 2 * i, sizeof(field));
    return CountInField<kBits>(field);
  } else if constexpr (kBits == 8) {
    return CountInField<kBits>(counts[i]);
  } else {
    return CountInField<kBits>(
        static_cast<uint32_t>(counts[i / 2] >> (i % 2 == 0 ? 4 : 0)));
  }
}

// The value that a count stands for.
template <int kBits>
TF_GC_HOST_DEVICE inline float CountValue(int count, float unit) {
  return count == CountNotFinite(kBits) ? BitCast<float>(kNaNBits)
                                        : static_cast<float>(count) * unit;
}

}  // namespace tf_gc
