// How a thread block decodes a segment and puts it together.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_UNPACK_SEGMENT_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_UNPACK_SEGMENT_CUH_

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/runs.cuh"
#include "custom_ops/lib/cuda/tables.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

// The entries of DecodingTable.
struct DecodingEntries {
  uint32_t of[kFrequencySum];

  __device__ uint32_t operator()(uint32_t low_bits) const {
    return of[low_bits];
  }
};

// What decoding looks up, in device memory.
struct DecodingTables {
  DecodingEntries scales;
  DecodingEntries few;
  DecodingEntries some;
};

// The same for the kinds of a plane.
struct KindStarts {
  int of[kKinds + 1];

  __device__ void Fill(const uint8_t* counts) {
    const KindTable table(counts);
    of[0] = 0;
    for (int kind = 0; kind < kKinds; ++kind) {
      of[kind + 1] = of[kind] + table.frequencies[kind];
    }
  }

  __device__ uint32_t operator()(uint32_t low_bits) const {
    const int value = static_cast<int>(low_bits);
    const int kind = FindStart(of, kKinds, value);
    return DecodingEntry(static_cast<uint32_t>(kind),
                         static_cast<uint32_t>(of[kind + 1] - of[kind]),
                         static_cast<uint32_t>(value - of[kind]));
  }
};

// The bits of a segment's runs in each plane, in their places, in device
// memory. A thread reads those that it wrote.
template <Codec kCodec>
struct RunPlanes {
  static constexpr int kPlanes = NumPlanes(kCodec);
  uint64_t bits[kPlanes][kSegmentRuns];
  uint64_t streams[kPlaneWords];  // of a plane: bits of few ones and of some

  __device__ uint64_t Common(int run) const {
    uint64_t common = 0;
    for (int i = 1; i < MagnitudeBits(kCodec); ++i) common |= bits[1 + i][run];
    return common;
  }

  // Which codes of a run have a bit in a plane, given the planes before it.
  __device__ uint64_t SentOf(int plane, int run) const {
    if (plane == 0) return ~uint64_t{0};
    return HasRareBits(kCodec) && plane == kPlanes - 1 ? Common(run)
                                                       : bits[0][run];
  }

  __device__ Codes<kCodec> CodesOf(int run) const {
    Codes<kCodec> codes;
    for (int i = 1; i < MagnitudeBits(kCodec); ++i) {
      codes.magnitudes[i] = bits[1 + i][run];
    }
    codes.magnitudes[0] = bits[0][run] & ~codes.Common();
    if (HasRareBits(kCodec)) codes.magnitudes[0] |= bits[kPlanes - 1][run];
    codes.sign = bits[1][run];
    return codes;
  }
};

template <Codec kCodec>
struct UnpackShared {
  FilledBlocks filled;
  uint16_t order[kSegmentBlocks];
  KindStarts kind_starts;
  uint8_t kinds[kSegmentRuns];  // of a plane
  Exchange<kCodec> exchange;
};

// ---- The coder --------------------------------------------------------------

// A lane of the first warp is one of the coder. The other warps take no part.
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

  static __device__ bool Decodes() { return threadIdx.x < kWarp; }

  // Decodes rows of bytes, from the first to the last. All threads of a block
  // call it together.
  template <typename Table>
  __device__ void Rows(const Table& table, int64_t rows, uint8_t* bytes) {
    if (!Decodes()) return;
    const int lane = threadIdx.x % kWarp;
    for (int64_t row = 0; row < rows && !broken; ++row) {
      bytes[row * kCoderLanes + lane] =
          DecodeSymbol(table(state % kFrequencySum), &state);
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

  // Whether there were words for all rows: before that is known, nothing may
  // read them. All threads of a block call it together and get the same answer.
  __device__ bool Fits() const { return !__syncthreads_or(broken); }

  // The same if these were the last rows: whether all words were taken and all
  // states are where they began.
  __device__ bool Complete() const {
    return !__syncthreads_or(Decodes() &&
                             (broken || left != 0 || state != kLowestState));
  }
};

// ---- Decoding ---------------------------------------------------------------

// Decodes the high bytes of a segment's scales, and finds out which blocks are
// not empty. Whether that was possible; to all threads of a block.
template <Codec kCodec>
__device__ bool DecodeScales(const DecodingEntries& table,
                             const SegmentHeader& header, int blocks,
                             const SegmentLayout& layout, Decoder* decoder,
                             UnpackShared<kCodec>* shared) {
  uint8_t* const high = shared->filled.high;
  if (HasScales(kCodec)) {
    decoder->Rows(table, layout.scale_rows, high);
  } else {
    for (int i = threadIdx.x; i < blocks; i += kThreads) {
      high[i] = kHighByteOfNone;
    }
  }
  if (!decoder->Fits()) return false;
  const int filled = shared->filled.Count(blocks);
  return static_cast<uint32_t>(filled) == header.filled;
}

// The bits of a stream from the bit `position` on, of which `wanted` are
// wanted. Reads no word that has none of these.
__device__ inline uint64_t BitsAt(const uint64_t* stream, int position,
                                  int wanted) {
  if (wanted == 0) return 0;
  const uint64_t* const word = stream + position / 64;
  const int used = position % 64;
  uint64_t bits = word[0] >> used;
  if (used + wanted > 64) bits |= word[1] << (64 - used);
  return bits;
}

// Decodes a plane of a segment, given those before it and its mixed bits, of
// which there may be no more than `most_mixed` words, flags of groups included.
// Returns how many there are, or -1 if there are more or if decoding was not
// possible; to all threads of a block.
template <Codec kCodec>
__device__ int DecodePlane(const DecodingTables& tables, int plane,
                           const uint8_t* counts, const uint64_t* mixed,
                           int most_mixed, const SegmentLayout& layout,
                           const Runs& runs, Decoder* decoder,
                           UnpackShared<kCodec>* shared,
                           RunPlanes<kCodec>* planes) {
  const int thread = threadIdx.x;
  const int only_kind = OnlyKind(counts);
  const bool grouped = plane == 0 && only_kind == kGrouped;
  const int flag_words = grouped ? FlagWords(runs.count) : 0;
  if (flag_words > most_mixed) return -1;
  if (only_kind == kKinds) {
    if (thread == 0) shared->kind_starts.Fill(counts);
    __syncthreads();
    decoder->Rows(shared->kind_starts, layout.kind_rows, shared->kinds);
  } else {
    const int kind = grouped ? 2 * kMixed : only_kind;  // not inverted
    for (int run = thread; run < runs.count; run += kThreads) {
      shared->kinds[run] = static_cast<uint8_t>(kind);
    }
  }
  if (!decoder->Fits()) return -1;

  const auto kind_of = [=](int run) {
    return shared->kinds[runs.KindIndex(run)];
  };
  const auto sent_of = [=](int run) {
    return grouped ? BitsOfGroups(reinterpret_cast<const uint16_t*>(mixed)[run])
                   : planes->SentOf(plane, run);
  };
  const auto bits_of = [=](int run) {
    return ClassBits(kind_of(run) / 2, __popcll(sent_of(run)));
  };
  uint64_t own = 0;
  for (int run = thread; run < runs.count; run += kThreads) {
    own += bits_of(run).packed();
  }
  const ClassBits all(SumOfBlock(own).all);
  const int few_rows = RowsOfBits(all.Of(kFew));
  const int some_rows = RowsOfBits(all.Of(kSome));
  const int mixed_words =
      flag_words + static_cast<int>(BytesOfBits(all.Of(kMixed)) / 8);
  if (mixed_words > most_mixed) return -1;
  const uint64_t* const streams[kClasses] = {
      nullptr, planes->streams, planes->streams + few_rows * kRowLongWords,
      mixed + flag_words};
  uint8_t* const rows = reinterpret_cast<uint8_t*>(planes->streams);
  decoder->Rows(tables.few, few_rows, rows);
  decoder->Rows(tables.some, some_rows, rows + few_rows * kCoderLanes);
  if (!decoder->Fits()) return -1;

  uint64_t before = 0;  // ClassBits of the runs before these
  for (int first = 0; first < runs.count; first += kThreads) {
    const int run = first + thread;
    const bool inside = run < runs.count;
    const ClassBits bits = inside ? bits_of(run) : ClassBits();
    const Sums<uint64_t> sums = SumOfBlock(bits.packed());
    if (inside) {
      const int kind = kind_of(run);
      const int of_class = kind / 2;
      uint64_t of_run = 0;
      if (of_class != kEqual) {
        of_run = BitsAt(streams[of_class],
                        ClassBits(before + sums.before).Of(of_class),
                        bits.Of(of_class));
      }
      if (kind % 2 != 0) of_run = ~of_run;
      planes->bits[plane][run] = Mask(sent_of(run)).PutBack(of_run);
    }
    before += sums.all;
  }
  __syncthreads();  // Then the next plane may overwrite what is shared.
  return mixed_words;
}

// Decodes all planes of a segment, which end the decoder's words. Whether that
// was possible; to all threads of a block.
template <Codec kCodec>
__device__ bool DecodePlanes(const DecodingTables& tables, const uint8_t* from,
                             const SegmentHeader& header,
                             const SegmentLayout& layout, const Runs& runs,
                             Decoder* decoder, UnpackShared<kCodec>* shared,
                             RunPlanes<kCodec>* planes) {
  const uint64_t* mixed =
      reinterpret_cast<const uint64_t*>(from + layout.mixed_offset);
  int left = static_cast<int>(header.mixed);
  for (int plane = 0; plane < NumPlanes(kCodec); ++plane) {
    const int words =
        DecodePlane(tables, plane, from + layout.counts_offset + plane * kKinds,
                    mixed, left, layout, runs, decoder, shared, planes);
    if (words < 0) return false;
    mixed += words;
    left -= words;
  }
  return decoder->Complete() && left == 0;
}

// ---- The segment ------------------------------------------------------------

// Puts the scales of a segment together.
__device__ inline void JoinScales(const FilledBlocks& filled, int blocks,
                                  const uint8_t* low, uint16_t* scales) {
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    scales[i] = static_cast<uint16_t>(
        filled.Has(i) ? low[filled.before[i]] | filled.high[i] << 8 : 0);
  }
}

// Puts the codes of a segment together.
template <Codec kCodec>
__device__ void Join(const RunPlanes<kCodec>& planes, const Runs& runs,
                     int blocks, UnpackShared<kCodec>* shared, uint8_t* codes) {
  const auto store = [=](const Codes<kCodec>& half, int block, int number) {
    half.Store(codes + block * CodeBytes(kCodec), number);
  };
  const int thread = threadIdx.x;
  for (int first = 0; first < runs.count; first += kThreads) {
    const int run = first + thread;
    Codes<kCodec> of_run = {};
    if (run < runs.count) of_run = planes.CodesOf(run);
    Transpose<kCodec>(runs.IsInTile(run), runs.Column(run), thread, &of_run,
                      &shared->exchange);
    if (run < runs.count) store(of_run, runs.Block(run), runs.Half(run));
  }
  // The blocks that no run is of.
  if (runs.count == blocks * kHalves) return;
  for (int block = threadIdx.x; block < blocks; block += kThreads) {
    if (shared->filled.Has(block)) continue;
    for (int half = 0; half < kHalves; ++half) store({}, block, half);
  }
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_UNPACK_SEGMENT_CUH_
