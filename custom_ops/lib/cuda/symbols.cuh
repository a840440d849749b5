// What packing counts on a GPU, and the frequencies that follow from it.

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

// The symbols of both tables: those of maps, then those of scales.
constexpr int kSymbols = kMapSymbols + kScaleSymbols;
// What coding looks up: for these symbols, then for bytes of rare bits.
constexpr int kEntries = kSymbols + kRareSymbols;

// What is counted, and what follows from it.
struct Symbols {
  uint32_t counts[kSymbols];
  unsigned long long rare;  // bits
  unsigned long long ones;  // of them
  uint16_t frequencies[kSymbols];
  uint32_t entries[kEntries];
  uint64_t chance;
};

template <Codec kCodec>
__device__ inline HalfBlock<MagnitudeBits(kCodec)> LoadHalf(
    const uint8_t* codes, int64_t half) {
  return HalfBlock<MagnitudeBits(kCodec)>::Load(
      codes + half / kHalves * CodeBytes(kCodec),
      static_cast<int>(half % kHalves));
}

// Adds the symbols of every kSampledBlocks-th block to the counts. All threads
// of a kernel call it together.
template <Codec kCodec>
__device__ void CountSymbols(const MessageLayout& layout,
                             const uint8_t* message, Symbols* symbols) {
  __shared__ uint32_t counts[kSymbols];
  for (int i = threadIdx.x; i < kSymbols; i += kThreads) counts[i] = 0;
  __syncthreads();
  const uint8_t* const codes = layout.Codes(message, 0);
  const uint16_t* const scales = layout.Scales(message, 0);
  uint32_t rare = 0;
  uint32_t ones = 0;
  const int first = blockIdx.x * kThreads + threadIdx.x;
  for (int64_t i = first;; i += gridDim.x * kThreads) {
    const int64_t block = i / kHalves * kSampledBlocks;
    if (block >= layout.blocks) break;
    if (HasScales(kCodec)) {
      const int high = scales[block] >> 8;
      if (i % kHalves == 0) {
        atomicAdd(&counts[kMapSymbols + high % kScaleSymbols], 1u);
      }
      if (!IsFilled(high)) continue;
    }
    const auto bits = LoadHalf<kCodec>(codes, block * kHalves + i % kHalves);
    const uint64_t common = bits.Common();
    const uint64_t map = bits.magnitudes[0] | common;
    for (int shift = 0; shift < 64; shift += 8) {
      atomicAdd(&counts[map >> shift & 0xff], 1u);
    }
    if constexpr (HasRareBits(kCodec)) {
      rare += __popcll(common);
      ones += __popcll(common & bits.magnitudes[0]);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kSymbols; i += kThreads) {
    if (counts[i] != 0) atomicAdd(&symbols->counts[i], counts[i]);
  }
  if constexpr (HasRareBits(kCodec)) {
    const auto all_rare = SumOfBlock<unsigned long long>(rare).all;
    const auto all_ones = SumOfBlock<unsigned long long>(ones).all;
    if (threadIdx.x == 0) {
      atomicAdd(&symbols->rare, all_rare);
      atomicAdd(&symbols->ones, all_ones);
    }
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

// What CodingTable has for bytes of rare bits, by a warp.
__device__ inline void RareEntriesByWarp(uint64_t chance, uint32_t* entries) {
  constexpr int kOfLane = kRareSymbols / kWarp;
  const RareFrequencies frequencies(chance);
  const int first = threadIdx.x % kWarp * kOfLane;
  uint32_t sum = 0;
  for (int i = first; i < first + kOfLane; ++i) sum += frequencies.Of(i);
  uint32_t start = SumUpTo(sum) - sum;
  for (int i = first; i < first + kOfLane; ++i) {
    entries[i] = CodingEntry(frequencies.Of(i), start);
    start += frequencies.Of(i);
  }
}

// Fills what follows from the counts. All threads of a block call it together.
template <Codec kCodec>
__device__ void FillTables(Symbols* symbols) {
  const int warp = threadIdx.x / kWarp;
  if (warp == 0) {
    NormalizeByWarp<kMapSymbols>(symbols->counts, symbols->frequencies,
                                 symbols->entries);
  } else if (warp == 1) {
    NormalizeByWarp<kScaleSymbols>(symbols->counts + kMapSymbols,
                                   symbols->frequencies + kMapSymbols,
                                   symbols->entries + kMapSymbols);
  } else if (warp == 2) {
    const uint64_t chance =
        HasRareBits(kCodec) ? ChanceOf(symbols->ones, symbols->rare) : 0;
    RareEntriesByWarp(chance, symbols->entries + kSymbols);
    if (threadIdx.x % kWarp == 0) symbols->chance = chance;
  }
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_SYMBOLS_CUH_
