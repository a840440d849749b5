// How a thread block takes a segment apart and codes it.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_PACK_SEGMENT_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_PACK_SEGMENT_CUH_

#include <cstdint>

#include "custom_ops/lib/codec/frequencies.h"
#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/runs.cuh"
#include "custom_ops/lib/cuda/symbols.cuh"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

// The parts of a segment that is coded, in device memory, and what is coded.
template <Codec kCodec>
struct PackedSegment {
  static constexpr int kPlanes = NumPlanes(kCodec);
  // So many are too many: the segment would not get smaller.
  static constexpr int kMostWords =
      static_cast<int>(PlainBytes(kCodec, kSegmentBlocks) / 2);

  uint16_t words[kMostWords + kCoderLanes + kStateWords];
  uint8_t scales[kSegmentBlocks];  // and zeros up to a multiple of 8 bytes
  uint8_t counts[kPlanes][kKinds];
  uint8_t kinds[kPlanes][kSegmentRuns];  // and zeros that fill a row
  // The flags of groups, the mixed bits of all planes, then rows of the other
  // classes' bits.
  uint64_t streams[FlagWords(kSegmentRuns) + kPlanes * kPlaneWords];

  __device__ uint8_t* Bytes(int word) {
    return reinterpret_cast<uint8_t*>(streams + word);
  }
};

template <Codec kCodec>
struct PackShared {
  static constexpr int kPlanes = NumPlanes(kCodec);

  Entries entries;
  FilledBlocks filled;
  uint16_t order[kSegmentBlocks];
  Exchange<kCodec> exchange;
  uint32_t kinds[kPlanes][kKinds];   // how many runs have them
  uint32_t bits[kPlanes][kClasses];  // of the runs of each class
  int starts[kPlanes][kClasses];     // words of PackedSegment::streams
  int end_of_mixed;
  int end;
  uint32_t kind_entries[kPlanes][kKinds];
};

// ---- Scales -----------------------------------------------------------------

// Says which blocks are not empty, and takes their scales apart if there are
// any. Returns false to each thread that has seen a scale that is below zero,
// or not zero though its high byte is.
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
  // Zeros fill the last row.
  for (int i = threadIdx.x; i < RoundUp(blocks, kCoderLanes); i += kThreads) {
    const int scale = scale_of(i);
    filled.high[i] = static_cast<uint8_t>(scale >> 8);
    fits = fits && scale >> 8 < kScaleSymbols &&
           (scale == 0 || IsFilled(scale >> 8));
  }
  __syncthreads();
  const int count = filled.Count(blocks);
  header->filled = static_cast<uint32_t>(count);
  const int thread = threadIdx.x;
  if (thread < RoundUp(count, 8) - count) low[count + thread] = 0;
  if (HasScales(kCodec)) {
    for (int i = thread; i < blocks; i += kThreads) {
      if (filled.Has(i))
        low[filled.before[i]] = static_cast<uint8_t>(scales[i]);
    }
  }
  return fits;
}

// ---- Codes ------------------------------------------------------------------

// Returns false to each thread that has seen a code that cannot be coded: "not
// finite", or any in a block that would be empty.
template <Codec kCodec>
__device__ bool HasSymbols(const uint8_t* codes, int blocks,
                           const FilledBlocks& filled) {
  constexpr int kOfBlock = static_cast<int>(kHalves);
  bool fits = true;
  for (int i = threadIdx.x; i < blocks * kOfBlock; i += kThreads) {
    const int block = i / kOfBlock;
    const auto half = LoadHalf<kCodec>(codes, block, i % kOfBlock);
    const uint64_t nonzero = NonzeroOf<kCodec>(half);
    fits = fits && (half.sign & ~nonzero) == 0 &&
           (nonzero == 0 || filled.Has(block));
  }
  return fits;
}

template <Codec kCodec>
__device__ int CostOf(const Codes<kCodec>& codes) {
  const uint64_t nonzero = NonzeroOf<kCodec>(codes);
  return RunCost(__popcll(nonzero), __popcll(codes.sign & nonzero));
}

// What some tiles of a period cost, less than the halves of their blocks. All
// threads of a block get the same answer.
template <Codec kCodec>
__device__ int PeriodCost(const Runs& runs, const uint8_t* codes,
                          Exchange<kCodec>* exchange) {
  constexpr int kTiles = kThreads / kTileRuns;  // at once
  const int thread = threadIdx.x;
  int cost = 0;
  for (int first = 0; first < runs.in_tiles;
       first += kTiles * kSampledTiles * kTileRuns) {
    const int run = first + thread / kTileRuns * kSampledTiles * kTileRuns +
                    thread % kTileRuns;
    Codes<kCodec> of_run = {};
    if (runs.IsInTile(run)) {
      of_run = LoadHalf<kCodec>(codes, runs.Block(run), runs.Half(run));
    }
    cost -= CostOf<kCodec>(of_run);
    Transpose<kCodec>(runs.IsInTile(run), thread, thread, &of_run, exchange);
    cost += CostOf<kCodec>(of_run);
  }
  return SumOfBlock(cost).all;
}

// The period of a segment, the same to all threads of a block.
template <Codec kCodec>
__device__ int ChoosePeriod(const Periods& periods, const uint8_t* codes,
                            int blocks, PackShared<kCodec>* shared) {
  int best = 0;
  int best_cost = 0;
  for (int i = 0; i < periods.count; ++i) {
    const Runs runs = RunsOf(periods.values[i], /*paired=*/false, blocks,
                             blocks, /*scales=*/nullptr, shared);
    const int cost = PeriodCost<kCodec>(runs, codes, &shared->exchange);
    if (cost < best_cost) {
      best = periods.values[i];
      best_cost = cost;
    }
  }
  return best;
}

// How the kinds of runs are chosen.
enum class Way { kByRun, kMixed, kGroupedMap };

// The same to all threads of a block.
template <Codec kCodec>
__device__ Way ChooseWay(const Periods& periods, const Runs& runs,
                         const uint8_t* codes) {
  if (periods.count > 0) return Way::kByRun;
  constexpr int kStep = static_cast<int>(kSampledRuns);
  int groups = 0;
  for (int run = threadIdx.x * kStep; run < runs.count;
       run += kThreads * kStep) {
    const auto of_run =
        LoadHalf<kCodec>(codes, runs.Block(run), runs.Half(run));
    groups += __popc(FlagsOf(NonzeroOf<kCodec>(of_run)));
  }
  const int sampled = (runs.count + kStep - 1) / kStep;
  return IsGrouped(SumOfBlock(groups).all, sampled) ? Way::kGroupedMap
                                                    : Way::kMixed;
}

// The kind of a run's bits in a plane. All lanes of a warp call it together.
template <Codec kCodec>
__device__ int ChooseKind(const PlaneBits<kCodec>& planes, int plane, Way way,
                          bool paired) {
  if (way == Way::kGroupedMap && plane == 0) return kGrouped;
  if (way != Way::kByRun) return 2 * kMixed;
  int ones = __popcll(planes.bits[plane]);
  int bits = planes.sizes[plane];
  if (paired) {
    ones += __shfl_xor_sync(kAllLanes, ones, 1);
    bits += __shfl_xor_sync(kAllLanes, bits, 1);
  }
  return KindOf(ones, bits);
}

// Chooses the kinds of all runs, and counts them and the bits of each class.
template <Codec kCodec>
__device__ void ChooseKinds(Way way, const Runs& runs, const uint8_t* codes,
                            PackShared<kCodec>* shared,
                            PackedSegment<kCodec>* packed) {
  constexpr int kPlanes = NumPlanes(kCodec);
  const int thread = threadIdx.x;
  if (thread < kPlanes * kKinds) {
    shared->kinds[thread / kKinds][thread % kKinds] = 0;
  }
  if (thread < kPlanes * kClasses) {
    shared->bits[thread / kClasses][thread % kClasses] = 0;
  }
  const int kinds = runs.KindIndex(runs.count);
  const int row_end = static_cast<int>(RoundUp(kinds, kCoderLanes));
  if (thread < row_end - kinds) {
    for (int plane = 0; plane < kPlanes; ++plane) {
      packed->kinds[plane][kinds + thread] = 0;
    }
  }
  __syncthreads();
  const auto choose = [&](int run, const Codes<kCodec>& of_run) {
    const PlaneBits<kCodec> planes(of_run, way == Way::kGroupedMap);
    for (int plane = 0; plane < kPlanes; ++plane) {
      const int kind = ChooseKind(planes, plane, way, runs.paired);
      if (run >= runs.count) continue;
      // Both runs of a pair write the same, and both are counted.
      packed->kinds[plane][runs.KindIndex(run)] = static_cast<uint8_t>(kind);
      atomicAdd(&shared->kinds[plane][kind], 1u);
      atomicAdd(&shared->bits[plane][kind / 2],
                static_cast<uint32_t>(planes.sizes[plane]));
    }
  };
  ForRuns<kCodec>(runs, codes, &shared->exchange, choose);
  __syncthreads();
}

// Fills what follows from the numbers of kinds and bits, and puts zeros where
// the bits go. Returns the words of mixed bits, `flag_words` included.
template <Codec kCodec>
__device__ uint32_t PlaceStreams(int flag_words, PackShared<kCodec>* shared,
                                 PackedSegment<kCodec>* packed) {
  constexpr int kPlanes = NumPlanes(kCodec);
  const int thread = threadIdx.x;
  if (thread < kPlanes) {
    const uint32_t* const counts = shared->kinds[thread];
    uint32_t most = 0;
    for (int kind = 0; kind < kKinds; ++kind) {
      if (counts[kind] > most) most = counts[kind];
    }
    uint8_t* const bytes = packed->counts[thread];
    for (int kind = 0; kind < kKinds; ++kind) {
      bytes[kind] = CountByte(counts[kind], most);
    }
    KindEntries(bytes, shared->kind_entries[thread]);
  }
  if (thread == 0) {
    int end = flag_words;
    for (int plane = 0; plane < kPlanes; ++plane) {
      shared->starts[plane][kMixed] = end;
      end += static_cast<int>(BytesOfBits(shared->bits[plane][kMixed]) / 8);
    }
    shared->end_of_mixed = end;
    for (int plane = 0; plane < kPlanes; ++plane) {
      for (int of_class = kFew; of_class <= kSome; ++of_class) {
        shared->starts[plane][of_class] = end;
        end += RowsOfBits(static_cast<int>(shared->bits[plane][of_class])) *
               kRowLongWords;
      }
    }
    shared->end = end;
  }
  __syncthreads();
  for (int i = thread; i < shared->end; i += kThreads) packed->streams[i] = 0;
  __syncthreads();
  return static_cast<uint32_t>(shared->end_of_mixed);
}

// Puts bits from the bit `position` of a stream on, where there are zeros.
__device__ inline void PutBits(uint64_t bits, int position, uint64_t* stream) {
  uint32_t* const to = reinterpret_cast<uint32_t*>(stream) + position / 32;
  const int shift = position % 32;
  const uint64_t low = bits << shift;
  const uint32_t parts[] = {static_cast<uint32_t>(low),
                            static_cast<uint32_t>(low >> 32),
                            static_cast<uint32_t>(bits >> 32 >> (32 - shift))};
  for (int i = 0; i < 3; ++i) {
    if (parts[i] != 0) atomicOr(to + i, parts[i]);
  }
}

// Puts the bits of all runs where they belong.
template <Codec kCodec>
__device__ void PutRuns(Way way, const Runs& runs, const uint8_t* codes,
                        PackShared<kCodec>* shared,
                        PackedSegment<kCodec>* packed) {
  constexpr int kPlanes = NumPlanes(kCodec);
  const bool grouped = way == Way::kGroupedMap;
  uint16_t* const flags = reinterpret_cast<uint16_t*>(packed->streams);
  uint64_t before[kPlanes] = {};  // ClassBits of the runs before these
  const auto put = [&](int run, const Codes<kCodec>& of_run) {
    const PlaneBits<kCodec> planes(of_run, grouped);
    if (grouped && run < runs.count) {
      flags[run] = FlagsOf(NonzeroOf<kCodec>(of_run));
    }
    for (int plane = 0; plane < kPlanes; ++plane) {
      const int size = run < runs.count ? planes.sizes[plane] : 0;
      const int kind = ChooseKind(planes, plane, way, runs.paired);
      const int of_class = kind / 2;
      const auto sums = SumOfBlock(ClassBits(of_class, size).packed());
      if (of_class != kEqual && size != 0) {
        const uint64_t ones = ~uint64_t{0} >> (64 - size);
        const uint64_t inverted = kind % 2 != 0 && kind != kGrouped ? ones : 0;
        PutBits(planes.bits[plane] ^ inverted,
                ClassBits(before[plane] + sums.before).Of(of_class),
                packed->streams + shared->starts[plane][of_class]);
      }
      before[plane] += sums.all;
    }
  };
  ForRuns<kCodec>(runs, codes, &shared->exchange, put);
}

// ---- The coder --------------------------------------------------------------

// A lane of the coder. All lanes of a warp call its functions together.
struct Coder {
  uint16_t* words;
  int most;  // of the words: from there on they are too many
  int count = 0;
  uint32_t state = kLowestState;

  __device__ Coder(uint16_t* to, int most_words)
      : words(to), most(most_words) {}

  __device__ bool Full() const { return count >= most; }

  // Codes rows of bytes, from the last to the first, unless there are too many
  // words.
  __device__ void Rows(const uint32_t* entries, const uint8_t* bytes,
                       int64_t rows) {
    const int lane = threadIdx.x % kWarp;
    for (int64_t row = rows - 1; row >= 0 && !Full(); --row) {
      uint16_t word;
      const bool takes =
          CodeSymbol(entries[bytes[row * kCoderLanes + lane]], &state, &word);
      const unsigned lanes = __ballot_sync(kAllLanes, takes);
      if (takes) words[count + __popc(lanes & ((1u << lane) - 1))] = word;
      count += __popc(lanes);
    }
  }

  // Writes the states, and zeros up to a multiple of 8 bytes.
  __device__ void Finish() {
    const int lane = threadIdx.x % kWarp;
    words[count + 2 * lane] = static_cast<uint16_t>(state);
    words[count + 2 * lane + 1] = static_cast<uint16_t>(state >> 16);
    count += static_cast<int>(kStateWords);
    if (lane < RoundUp(count, 4) - count) words[count + lane] = 0;
  }
};

// Codes the planes and the scales of a segment with one warp. Returns the
// number of words, or 0 if they are too many.
template <Codec kCodec>
__device__ uint32_t CodeSegment(const PackShared<kCodec>& shared,
                                const SegmentLayout& rows,
                                PackedSegment<kCodec>* packed) {
  Coder coder(packed->words, PackedSegment<kCodec>::kMostWords);
  const auto code = [&](int plane, int of_class, const uint32_t* entries) {
    coder.Rows(entries, packed->Bytes(shared.starts[plane][of_class]),
               RowsOfBits(static_cast<int>(shared.bits[plane][of_class])));
  };
  for (int plane = NumPlanes(kCodec) - 1; plane >= 0; --plane) {
    code(plane, kSome, shared.entries.some);
    code(plane, kFew, shared.entries.few);
    if (OnlyKind(packed->counts[plane]) == kKinds) {
      coder.Rows(shared.kind_entries[plane], packed->kinds[plane],
                 rows.kind_rows);
    }
  }
  coder.Rows(shared.entries.scales, shared.filled.high, rows.scale_rows);
  if (coder.Full()) return 0;
  coder.Finish();
  return static_cast<uint32_t>(coder.count);
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_PACK_SEGMENT_CUH_
