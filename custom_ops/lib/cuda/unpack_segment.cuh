// How a thread block decodes a segment and puts it together.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_UNPACK_SEGMENT_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_UNPACK_SEGMENT_CUH_

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

// The entries of DecodingTable.
struct DecodingEntries {
  uint32_t of[kFrequencySum];
};

struct UnpackShared {
  DecodingEntries entries;
  uint64_t map[kSegmentHalves];
  FilledBlocks filled;
};

// What a lane of the coder has.
struct Decoder {
  const uint16_t* words;
  uint32_t left;  // of the words
  uint32_t state;
  bool broken = false;

  // `count` >= kStateWords words, the last of which are the states.
  __device__ Decoder(const uint16_t* segment, uint32_t count)
      : words(segment), left(count - static_cast<uint32_t>(kStateWords)) {
    const uint16_t* const own = words + left + 2 * (threadIdx.x % kWarp);
    state = own[0] | static_cast<uint32_t>(own[1]) << 16;
  }

  // Decodes rows of bytes, from the first to the last, and calls
  // store(number of the byte, byte). All lanes of a warp call it together.
  template <typename Store>
  __device__ void Rows(const DecodingEntries& entries, int rows, Store store) {
    const int lane = threadIdx.x % kWarp;
    for (int row = 0; row < rows && !broken; ++row) {
      store(row * kCoderLanes + lane,
            DecodeSymbol(entries.of[state % kFrequencySum], &state));
      const bool takes = state < kLowestState;
      const unsigned lanes = __ballot_sync(kAllLanes, takes);
      const unsigned taken = __popc(lanes);
      broken = taken > left;
      if (broken) continue;
      left -= taken;
      if (takes) {
        const unsigned below = __popc(lanes & ((1u << lane) - 1));
        state = state << 16 | words[left + below];
      }
    }
  }

  // Whether all words were taken and all states are where they began.
  __device__ bool Complete() const {
    return __all_sync(kAllLanes, !broken && left == 0 && state == kLowestState);
  }
};

// What decoding looks up, in device memory.
struct DecodingTables {
  DecodingEntries map;
  DecodingEntries scale;
  DecodingEntries rare;
};

// The rare bits of a segment, in device memory: rows, and a word
// that follows the last one of them.
struct RareBits {
  uint64_t words[kSegmentHalves + 2];  // a multiple of 16 bytes
};

// Decodes the high bytes of a segment's scales and its map into shared memory,
// and its rare bits, given what to look up. Whether that was possible; to all
// threads of a block.
template <Codec kCodec>
__device__ bool Decode(const DecodingTables& tables, const uint8_t* from,
                       const SegmentHeader& header, int blocks,
                       const SegmentLayout& layout, UnpackShared* shared,
                       RareBits* rare) {
  const bool decodes = threadIdx.x < kWarp;
  const auto load = [&](const DecodingEntries& entries) {
    CopyWords(reinterpret_cast<const uint8_t*>(&entries), sizeof(entries),
              reinterpret_cast<uint8_t*>(&shared->entries));
    __syncthreads();
  };
  Decoder decoder(reinterpret_cast<const uint16_t*>(from), header.words);
  uint8_t* const high = shared->filled.high;
  if constexpr (HasScales(kCodec)) {
    load(tables.scale);
    if (decodes) {
      decoder.Rows(shared->entries, static_cast<int>(layout.scale_rows),
                   [=](int i, uint8_t byte) { high[i] = byte; });
    }
  } else {
    for (int i = threadIdx.x; i < blocks; i += kThreads)
      high[i] = kHighByteOfNone;
  }
  __syncthreads();
  const int filled = shared->filled.Count(blocks);
  if (static_cast<uint32_t>(filled) != header.filled) return false;
  load(tables.map);
  uint8_t* const map = reinterpret_cast<uint8_t*>(shared->map);
  if (decodes) {
    decoder.Rows(shared->entries, static_cast<int>(layout.map_rows),
                 [=](int i, uint8_t byte) { map[i] = byte; });
  }
  if constexpr (HasRareBits(kCodec)) {
    __syncthreads();
    load(tables.rare);
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(rare->words);
    if (decodes) {
      decoder.Rows(shared->entries, static_cast<int>(layout.rare_rows),
                   [=](int i, uint8_t byte) { bytes[i] = byte; });
    }
    if (threadIdx.x == 0) {
      StoreWord(0, bytes + layout.rare_rows * kCoderLanes);
    }
  }
  return !__syncthreads_or(decodes && !decoder.Complete());
}

// Puts the scales of a segment together.
__device__ inline void JoinScales(const FilledBlocks& filled, int blocks,
                                  const uint8_t* low, uint16_t* scales) {
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    scales[i] = static_cast<uint16_t>(
        filled.Has(i) ? low[filled.before[i]] | filled.high[i] << 8 : 0);
  }
}

// The bits of a stream from the bit `position` on, of which `wanted` are
// wanted. If that is none, the stream may end there: at least 8 bytes follow
// it.
__device__ inline uint64_t BitsAt(const uint8_t* stream, int position,
                                  int wanted) {
  const uint8_t* const word = stream + position / 64 * 8;
  const int used = position % 64;
  uint64_t bits = LoadWord(word) >> used;
  if (used + wanted > 64) bits |= LoadWord(word + 8) << (64 - used);
  return bits;
}

// The bits that are 1 in the first or the last plane of a segment.
template <int kPlanes>
__device__ int CountCommon(const uint8_t* planes, int64_t bytes) {
  int count = 0;
  for (int64_t i = threadIdx.x * 8; i < bytes; i += kThreads * 8) {
    count += __popcll(LoadWord(planes + i) |
                      LoadWord(planes + (kPlanes - 1) * bytes + i));
  }
  return SumOfBlock(count).all;
}

// Puts the codes of a segment together, which has the bits that its map asks
// for.
template <Codec kCodec>
__device__ void Join(const UnpackShared& shared, const uint8_t* from,
                     const SegmentLayout& layout, const RareBits& decoded,
                     int blocks, uint8_t* codes) {
  const FilledBlocks& filled = shared.filled;
  constexpr int kBits = MagnitudeBits(kCodec);
  const int64_t bytes = layout.planes_offset - layout.signs_offset;
  const int halves = blocks * static_cast<int>(kHalves);
  const uint8_t* const rare_bits =
      reinterpret_cast<const uint8_t*>(decoded.words);
  int planes = 0;  // bits that were read
  int rare = 0;
  for (int first = 0; first < halves; first += kThreads) {
    const int half = first + threadIdx.x;
    const int block = half / static_cast<int>(kHalves);
    const Mask nonzero(
        half < halves && filled.Has(block)
            ? shared.map[filled.before[block] * kHalves + half % kHalves]
            : 0);
    const int count = __popcll(nonzero.mask);
    const Sums<int> sums = SumOfBlock(count);
    const int position = planes + sums.before;
    planes += sums.all;
    HalfBlock<kBits> bits;
    bits.sign =
        nonzero.PutBack(BitsAt(from + layout.signs_offset, position, count));
    for (int i = 1; i < kBits; ++i) {
      const uint8_t* const plane =
          from + layout.planes_offset + (i - 1) * bytes;
      bits.magnitudes[i] = nonzero.PutBack(BitsAt(plane, position, count));
    }
    const uint64_t common = bits.Common();
    bits.magnitudes[0] = nonzero.mask & ~common;
    if constexpr (kBits > 1) {
      const int count_common = __popcll(common);
      const Sums<int> common_sums = SumOfBlock(count_common);
      bits.magnitudes[0] |= Mask(common).PutBack(
          BitsAt(rare_bits, rare + common_sums.before, count_common));
      rare += common_sums.all;
    }
    if (half < halves) {
      bits.Store(codes + half / kHalves * CodeBytes(kCodec),
                 static_cast<int>(half % kHalves));
    }
  }
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_UNPACK_SEGMENT_CUH_
