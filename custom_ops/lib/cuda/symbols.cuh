// The frequencies of symbols that a packer codes with on a GPU.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_SYMBOLS_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_SYMBOLS_CUH_

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

// What coding looks up: the entries of CodingTable.
struct Entries {
  uint32_t scales[kScaleSymbols];
  uint32_t few[kByteSymbols];
  uint32_t some[kByteSymbols];
};

// The high bytes of the scales, counted, and what follows from that.
struct Symbols {
  uint32_t counts[kScaleSymbols];
  uint16_t frequencies[kScaleSymbols];
  Entries entries;
};

// Adds the high bytes of every kSampledBlocks-th block's scale to the counts.
// All threads of a kernel call it together.
__device__ inline void CountScales(const uint16_t* scales, int64_t blocks,
                                   Symbols* symbols) {
  __shared__ uint32_t counts[kScaleSymbols];
  for (int i = threadIdx.x; i < kScaleSymbols; i += kThreads) counts[i] = 0;
  __syncthreads();
  const int first = blockIdx.x * kThreads + threadIdx.x;
  for (int64_t i = first; i * kSampledBlocks < blocks;
       i += gridDim.x * kThreads) {
    const int high = scales[i * kSampledBlocks] >> 8;
    atomicAdd(&counts[high % kScaleSymbols], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kScaleSymbols; i += kThreads) {
    if (counts[i] != 0) atomicAdd(&symbols->counts[i], counts[i]);
  }
}

// Normalize(), and the entries of CodingTable, by a warp.
template <int kCount>
__device__ void NormalizeByWarp(const uint32_t* counts, uint16_t* frequencies,
                                uint32_t* entries) {
  constexpr int kOfLane = kCount / kWarp;
  const int first = threadIdx.x % kWarp * kOfLane;
  uint32_t total = 0;  // below 2^32, as there are fewer than 2^30 blocks
  uint32_t most_count = 0;
  int most = first;
  for (int i = first; i < first + kOfLane; ++i) {
    total += counts[i];
    if (counts[i] > most_count) {
      most_count = counts[i];
      most = i;
    }
  }
  total = SumOfWarp(total);
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t other_count = __shfl_xor_sync(kAllLanes, most_count, step);
    const int other = __shfl_xor_sync(kAllLanes, most, step);
    if (other_count > most_count ||
        (other_count == most_count && other < most)) {
      most_count = other_count;
      most = other;
    }
  }
  uint32_t frequency[kOfLane];
  uint32_t sum = 0;
  for (int i = 0; i < kOfLane; ++i) {
    frequency[i] = Frequency(kCount, counts[first + i], total);
    sum += frequency[i];
  }
  const uint32_t left = kFrequencySum - SumOfWarp(sum);
  sum = 0;
  for (int i = 0; i < kOfLane; ++i) {
    if (first + i == most) frequency[i] += left;
    sum += frequency[i];
  }
  uint32_t start = SumUpTo(sum) - sum;
  for (int i = 0; i < kOfLane; ++i) {
    frequencies[first + i] = static_cast<uint16_t>(frequency[i]);
    entries[first + i] = CodingEntry(frequency[i], start);
    start += frequency[i];
  }
}

// What CodingTable has for bytes of bits, by a warp.
__device__ inline void ByteEntriesByWarp(uint32_t chance, uint32_t* entries) {
  constexpr int kOfLane = kByteSymbols / kWarp;
  const ByteFrequencies frequencies(chance);
  const int first = threadIdx.x % kWarp * kOfLane;
  uint32_t sum = 0;
  for (int i = first; i < first + kOfLane; ++i) sum += frequencies.Of(i);
  uint32_t start = SumUpTo(sum) - sum;
  for (int i = first; i < first + kOfLane; ++i) {
    entries[i] = CodingEntry(frequencies.Of(i), start);
    start += frequencies.Of(i);
  }
}

// What CodingTable has for the kinds of a plane, by a thread.
__device__ inline void KindEntries(const uint8_t* counts, uint32_t* entries) {
  const KindTable table(counts);
  uint32_t start = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    entries[kind] = CodingEntry(table.frequencies[kind], start);
    start += table.frequencies[kind];
  }
}

// Fills what follows from the counts, and the other entries. All threads of a
// block call it together.
__device__ inline void FillTables(Symbols* symbols) {
  const int warp = threadIdx.x / kWarp;
  if (warp == 0) {
    NormalizeByWarp<kScaleSymbols>(symbols->counts, symbols->frequencies,
                                   symbols->entries.scales);
  } else if (warp == 1) {
    ByteEntriesByWarp(kFewChance, symbols->entries.few);
  } else if (warp == 2) {
    ByteEntriesByWarp(kSomeChance, symbols->entries.some);
  }
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_SYMBOLS_CUH_
