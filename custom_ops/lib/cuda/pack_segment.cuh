// How a thread block takes a segment apart and codes it.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_PACK_SEGMENT_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_PACK_SEGMENT_CUH_

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/symbols.cuh"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

constexpr int kMapRows = kSegmentBlocks * kMapBytes / kCoderLanes;
constexpr int kScaleRows = kSegmentBlocks / kCoderLanes;
// Signs and planes, and after them the rare bits.
template <Codec kCodec>
constexpr int kStreams =
    MagnitudeBits(kCodec) + (MagnitudeBits(kCodec) > 1 ? 1 : 0);

// The parts of a segment that is coded, in device memory. Each ends with zeros
// up to a multiple of 8 bytes.
template <Codec kCodec>
struct PackedSegment {
  static constexpr int kRows =
      kMapRows + kScaleRows + (HasRareBits(kCodec) ? kMapRows : 0);
  uint16_t words[kRows * kCoderLanes + kStateWords];
  uint8_t scales[kSegmentBlocks];
  uint64_t streams[kStreams<kCodec>][kSegmentHalves];
};

// Streams of bits that the threads of a block write, one after the other, in
// shared memory. The bits that fill words of 64 go to device memory.
template <int kStreams>
struct BitWords {
  // One word more than the threads have bits for.
  uint32_t halves[kStreams][2 * (kThreads + 1)];

  __device__ uint64_t Word(int stream, int word) const {
    const uint32_t* const low = &halves[stream][2 * word];
    return low[0] | static_cast<uint64_t>(low[1]) << 32;
  }
  __device__ void SetWord(int stream, int word, uint64_t value) {
    halves[stream][2 * word] = static_cast<uint32_t>(value);
    halves[stream][2 * word + 1] = static_cast<uint32_t>(value >> 32);
  }

  // Puts bits from the bit `position` on, where there are zeros.
  __device__ void Put(int stream, int position, uint64_t bits) {
    uint32_t* const to = halves[stream] + position / 32;
    const int shift = position % 32;
    const uint64_t low = bits << shift;
    const uint32_t parts[] = {
        static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
        static_cast<uint32_t>(bits >> 32 >> (32 - shift))};
    for (int i = 0; i < 3; ++i) {
      if (parts[i] != 0) atomicOr(to + i, parts[i]);
    }
  }
};

// How full a stream is.
struct Fill {
  int64_t bits = 0;

  __device__ int used() const { return static_cast<int>(bits % 64); }
  __device__ int64_t words() const { return bits / 64; }
  // The words that `more` bits fill.
  __device__ int Filled(int more) const { return (used() + more) / 64; }
};

template <Codec kCodec>
struct PackShared {
  uint64_t map[kSegmentHalves];
  FilledBlocks filled;
  uint32_t entries[kEntries];
  BitWords<kStreams<kCodec>> bits;
};

// Takes the codes of a segment apart, given which blocks are not empty. Rare
// bits end with zeros up to the end of a row. Returns false to
// each thread that has seen that they cannot be coded.
template <Codec kCodec>
__device__ bool Split(const uint8_t* codes, int blocks,
                      PackShared<kCodec>* shared, PackedSegment<kCodec>* packed,
                      SegmentHeader* header) {
  constexpr int kBits = MagnitudeBits(kCodec);
  constexpr int kRare = kBits;  // the number of the stream, if kBits > 1
  auto& words = shared->bits;
  const int thread = threadIdx.x;
  for (int s = 0; s < kStreams<kCodec>; ++s) {
    words.SetWord(s, thread, 0);
    if (thread == 0) words.SetWord(s, kThreads, 0);
  }
  Fill planes;  // of the signs' stream, and of the planes'
  Fill rare;    // of the last stream
  const int halves = blocks * static_cast<int>(kHalves);
  bool fits = true;
  for (int first = 0; first < halves; first += kThreads) {
    const int half = first + thread;
    HalfBlock<kBits> bits = {};
    if (half < halves) bits = LoadHalf<kCodec>(codes, half);
    const uint64_t common = bits.Common();
    const Mask nonzero(bits.magnitudes[0] | common);
    const int block = half / static_cast<int>(kHalves);
    if (half < halves && shared->filled.Has(block)) {
      shared->map[shared->filled.before[block] * kHalves + half % kHalves] =
          nonzero.mask;
    } else {
      fits = fits && nonzero.mask == 0;
    }
    fits = fits && (bits.sign & ~nonzero.mask) == 0;
    // Both counts of a block's threads are below 2^16.
    const auto sums =
        SumOfBlock<uint32_t>(__popcll(nonzero.mask) | __popcll(common) << 16);
    const int more = sums.all & 0xffff;
    const int more_rare = sums.all >> 16;
    const int position = planes.used() + (sums.before & 0xffff);
    words.Put(0, position, nonzero.PickOut(bits.sign));
    for (int s = 1; s < kBits; ++s) {
      words.Put(s, position, nonzero.PickOut(bits.magnitudes[s]));
    }
    if constexpr (kBits > 1) {
      words.Put(kRare, rare.used() + (sums.before >> 16),
                Mask(common).PickOut(bits.magnitudes[0]));
    }
    __syncthreads();
    uint64_t own[kStreams<kCodec>];
    uint64_t rest[kStreams<kCodec>];
    for (int s = 0; s < kStreams<kCodec>; ++s) {
      const int filled =
          s == kRare ? rare.Filled(more_rare) : planes.Filled(more);
      own[s] = words.Word(s, thread);
      rest[s] = words.Word(s, filled);
      if (thread < filled) {
        const Fill& fill = s == kRare ? rare : planes;
        packed->streams[s][fill.words() + thread] = own[s];
      }
    }
    __syncthreads();
    for (int s = 0; s < kStreams<kCodec>; ++s) {
      words.SetWord(s, thread, thread == 0 ? rest[s] : 0);
      if (thread == 0) words.SetWord(s, kThreads, 0);
    }
    planes.bits += more;
    rare.bits += more_rare;
  }
  for (int s = 0; s < kStreams<kCodec>; ++s) {
    const Fill& fill = s == kRare ? rare : planes;
    if (thread == 0 && fill.used() > 0) {
      packed->streams[s][fill.words()] = words.Word(s, 0);
    }
  }
  if constexpr (HasRareBits(kCodec)) {
    const int64_t end = BytesOfBits(rare.bits) / 8;
    const int64_t row_end = RoundUp(rare.bits, 8 * kCoderLanes) / 64;
    if (thread < row_end - end) packed->streams[kRare][end + thread] = 0;
  }
  header->nonzeros = static_cast<uint32_t>(planes.bits);
  header->rare = static_cast<uint32_t>(rare.bits);
  return fits;
}

// Says which blocks are not empty, and takes their scales apart if there are
// any. Puts zeros into the last row of the map. Returns false to each thread
// that has seen a scale that is below zero, or not zero though its high byte
// is.
template <Codec kCodec>
__device__ bool SplitScales(const uint16_t* scales, int blocks,
                            PackShared<kCodec>* shared, uint8_t* low,
                            SegmentHeader* header) {
  FilledBlocks& filled = shared->filled;
  const auto scale_of = [&](int i) -> int {
    if (!HasScales(kCodec)) return kHighByteOfNone << 8;
    return i < blocks ? scales[i] : 0;
  };
  bool fits = true;
  for (int i = threadIdx.x; i < RoundUp(blocks, kCoderLanes); i += kThreads) {
    const int scale = scale_of(i);
    filled.high[i] = static_cast<uint8_t>(scale >> 8);
    fits = fits && scale >> 8 < kScaleSymbols &&
           (scale == 0 || IsFilled(scale >> 8));
  }
  __syncthreads();
  const int count = filled.Count(blocks);
  header->filled = static_cast<uint32_t>(count);
  // Zeros fill the last word of low bytes, and the last row of the map.
  const int thread = threadIdx.x;
  if (thread < RoundUp(count, 8) - count) low[count + thread] = 0;
  if (thread < kHalves && count < kSegmentBlocks) {
    shared->map[count * kHalves + thread] = 0;
  }
  if (HasScales(kCodec)) {
    for (int i = thread; i < blocks; i += kThreads) {
      if (filled.Has(i))
        low[filled.before[i]] = static_cast<uint8_t>(scales[i]);
    }
  }
  return fits;
}

// Codes rows of bytes, from the last to the first. Returns the number of words
// with theirs.
__device__ inline int CodeRows(const uint32_t* entries, const uint8_t* bytes,
                               int64_t rows, uint32_t* state, int count,
                               uint16_t* words) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t row = rows - 1; row >= 0; --row) {
    uint16_t word;
    const bool full =
        CodeSymbol(entries[bytes[row * kCoderLanes + lane]], state, &word);
    const unsigned lanes = __ballot_sync(kAllLanes, full);
    if (full) words[count + __popc(lanes & ((1u << lane) - 1))] = word;
    count += __popc(lanes);
  }
  return count;
}

// Codes the rare bits, the map and the scales of a segment with one warp.
// Returns the number of words.
template <Codec kCodec>
__device__ int CodeSegment(const PackShared<kCodec>& shared,
                           const SegmentLayout& rows,
                           PackedSegment<kCodec>* packed) {
  const int lane = threadIdx.x % kWarp;
  uint16_t* const words = packed->words;
  uint32_t state = kLowestState;
  int count = 0;
  if constexpr (HasRareBits(kCodec)) {
    count = CodeRows(shared.entries + kSymbols,
                     reinterpret_cast<const uint8_t*>(
                         packed->streams[MagnitudeBits(kCodec)]),
                     rows.rare_rows, &state, count, words);
  }
  count = CodeRows(shared.entries, reinterpret_cast<const uint8_t*>(shared.map),
                   rows.map_rows, &state, count, words);
  count = CodeRows(shared.entries + kMapSymbols, shared.filled.high,
                   rows.scale_rows, &state, count, words);
  words[count + 2 * lane] = static_cast<uint16_t>(state);
  words[count + 2 * lane + 1] = static_cast<uint16_t>(state >> 16);
  count += kStateWords;
  if (lane < RoundUp(count, 4) - count) words[count + lane] = 0;
  return count;
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_PACK_SEGMENT_CUH_
