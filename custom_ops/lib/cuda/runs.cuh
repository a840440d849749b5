// The runs of a segment on a GPU: a thread has a run. Where its codes are, and
// how they become bits of the planes.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_RUNS_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_RUNS_CUH_

#include <cstdint>

#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/order.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

// The runs of a tile whose runs are not paired.
constexpr int kTileRuns = static_cast<int>(kRun * kHalves);
static_assert(kThreads == 2 * kTileRuns, "a thread block has a tile of pairs");

template <Codec kCodec>
using Codes = HalfBlock<MagnitudeBits(kCodec)>;

// ---- The order --------------------------------------------------------------

// A thread loads and stores half a block for each run. In tiles, numbers
// `kTileRuns * t + kRun * half + i` load and store half `half` of block
// `kRun * t + i`, and Transpose() makes columns of these halves.
struct Runs {
  int count;
  int in_tiles;  // the first of them
  bool paired;
  const uint16_t* blocks;  // in their new order, or those that are not empty

  __device__ bool IsInTile(int run) const { return run < in_tiles; }
  __device__ int Block(int run) const {
    return blocks[IsInTile(run) ? run / kTileRuns * kRun + run % kRun
                                : run / kHalves];
  }
  __device__ int Half(int run) const {
    return static_cast<int>(IsInTile(run) ? run % kTileRuns / kRun
                                          : run % kHalves);
  }

  // The column of a thread's run among those that its thread block loads: of a
  // pair, both parts of the tile have one.
  __device__ int Column(int run) const {
    const int thread = run % kThreads;
    return paired && IsInTile(run) ? thread % 2 * kTileRuns + thread / 2
                                   : thread;
  }

  // Which of the kinds is that of a run.
  __device__ int KindIndex(int run) const { return paired ? run / 2 : run; }
};

// The runs of a segment, whose blocks are not sorted by scale if `scales` is
// null. Fills shared->order, which they point at, with the help of
// shared->filled and shared->exchange. All threads of a block call it together.
template <typename Shared>
__device__ Runs RunsOf(int period, bool paired, int blocks, int filled_blocks,
                       const uint16_t* scales, Shared* shared) {
  const FilledBlocks& filled = shared->filled;
  uint16_t* const order = shared->order;
  __syncthreads();  // What is shared has been used.
  if (period != 0) {
    SortBlocks(period, blocks, scales, shared->exchange.of_blocks, order);
  } else {
    for (int i = threadIdx.x; i < blocks; i += kThreads) {
      if (filled.Has(i)) order[filled.before[i]] = static_cast<uint16_t>(i);
    }
  }
  __syncthreads();
  constexpr int kOfBlock = static_cast<int>(kHalves);
  if (period == 0) return {filled_blocks * kOfBlock, 0, false, order};
  const int count = blocks * kOfBlock;
  const int of_tile = paired ? 2 * kTileRuns : kTileRuns;
  return {count, count / of_tile * of_tile, paired, order};
}

// ---- Rows and columns of tiles ----------------------------------------------

// What the threads of a block show each other, in shared memory: codes, or
// something of each block while these are sorted.
template <Codec kCodec>
union Exchange {
  Codes<kCodec> of_threads[kThreads];
  uint16_t of_blocks[kSegmentBlocks];
};

// Of the codes of each kRun rows, swaps rows and columns if they are in a tile.
// A thread gives row `row` and gets column `column`, both numbered in the
// thread block. All of its threads call this together.
template <Codec kCodec>
__device__ void Transpose(bool in_tile, int row, int column,
                          Codes<kCodec>* codes, Exchange<kCodec>* exchange) {
  __syncthreads();  // The codes of the last call have been read.
  exchange->of_threads[row] = *codes;
  __syncthreads();
  if (!in_tile) return;
  constexpr int kSize = static_cast<int>(kRun);
  const int bit_of_row = column % kSize;
  const Codes<kCodec>* const rows = exchange->of_threads + column - bit_of_row;
  *codes = {};
  for (int j = 0; j < kSize; ++j) {
    const auto bit = [=](uint64_t bits) {
      return (bits >> bit_of_row & 1) << j;
    };
    for (int i = 0; i < MagnitudeBits(kCodec); ++i) {
      codes->magnitudes[i] |= bit(rows[j].magnitudes[i]);
    }
    codes->sign |= bit(rows[j].sign);
  }
}

template <Codec kCodec>
__device__ Codes<kCodec> LoadHalf(const uint8_t* codes, int block, int half) {
  return Codes<kCodec>::Load(codes + block * CodeBytes(kCodec), half);
}

// Calls use(run, its codes) for each run of a segment. All threads of a block
// call this together, and `use` as well: those for which no run is left have a
// number that is not below runs.count, and codes that are all zero.
template <Codec kCodec, typename Use>
__device__ void ForRuns(const Runs& runs, const uint8_t* codes,
                        Exchange<kCodec>* exchange, Use use) {
  const int thread = threadIdx.x;
  for (int first = 0; first < runs.count; first += kThreads) {
    const int run = first + thread;
    Codes<kCodec> of_run = {};
    if (run < runs.count) {
      of_run = LoadHalf<kCodec>(codes, runs.Block(run), runs.Half(run));
    }
    Transpose<kCodec>(runs.IsInTile(run), thread, runs.Column(run), &of_run,
                      exchange);
    use(run, of_run);
  }
}

// ---- Planes -----------------------------------------------------------------

static_assert(kGroup == 4 && kRun == 64);

template <Codec kCodec>
__device__ uint64_t NonzeroOf(const Codes<kCodec>& codes) {
  return codes.magnitudes[0] | codes.Common();
}

// Which groups of a map have a 1: a bit for each.
__device__ inline uint16_t FlagsOf(uint64_t map) {
  const uint64_t pairs = map | map >> 1;
  return static_cast<uint16_t>(BitMoves::PickFirstOfGroups(pairs | pairs >> 2));
}

// All bits of these groups.
__device__ inline uint64_t BitsOfGroups(uint16_t flags) {
  return BitMoves::PutFirstOfGroups(flags) * ((1 << kGroup) - 1);
}

// The bits of a run in each plane; of a map that is grouped, those of groups
// with a 1.
template <Codec kCodec>
struct PlaneBits {
  static constexpr int kPlanes = NumPlanes(kCodec);
  uint64_t bits[kPlanes];
  int sizes[kPlanes];

  __device__ PlaneBits(const Codes<kCodec>& codes, bool grouped) {
    constexpr int kBits = MagnitudeBits(kCodec);
    const Mask nonzero(NonzeroOf<kCodec>(codes));
    const int nonzeros = __popcll(nonzero.mask);
    if (grouped) {
      const Mask groups(BitsOfGroups(FlagsOf(nonzero.mask)));
      Set(0, groups.PickOut(nonzero.mask), __popcll(groups.mask));
    } else {
      Set(0, nonzero.mask, static_cast<int>(kRun));
    }
    Set(1, nonzero.PickOut(codes.sign), nonzeros);
    for (int i = 1; i < kBits; ++i) {
      Set(1 + i, nonzero.PickOut(codes.magnitudes[i]), nonzeros);
    }
    if constexpr (HasRareBits(kCodec)) {
      const uint64_t common = codes.Common();
      Set(kPlanes - 1, Mask(common).PickOut(codes.magnitudes[0]),
          __popcll(common));
    }
  }

 private:
  __device__ void Set(int plane, uint64_t of_plane, int size) {
    bits[plane] = of_plane;
    sizes[plane] = size;
  }
};

// How many bits of a plane are in each of the classes that have any. All of
// them are in one word, to be added up together.
class ClassBits {
 public:
  ClassBits() = default;
  __device__ explicit ClassBits(uint64_t packed) : packed_(packed) {}
  __device__ ClassBits(int of_class, int bits)
      : packed_(of_class == kEqual
                    ? 0
                    : static_cast<uint64_t>(bits) << Shift(of_class)) {}

  __device__ int Of(int of_class) const {
    return static_cast<int>(packed_ >> Shift(of_class) & ((1u << kBits) - 1));
  }
  __device__ uint64_t packed() const { return packed_; }

 private:
  static constexpr int kBits = 21;
  static_assert(kSegmentRuns * kRun < 1 << kBits);
  static_assert(kEqual == 0 && kClasses == 4);

  static __device__ int Shift(int of_class) { return kBits * (of_class - 1); }

  uint64_t packed_ = 0;
};

// The rows of a stream of bits.
__device__ inline int RowsOfBits(int bits) {
  constexpr int kRowBits = 8 * kCoderLanes;
  return (bits + kRowBits - 1) / kRowBits;
}
constexpr int kRowLongWords = kCoderLanes / 8;  // of 64 bits

// The words of 64 bits that the streams of a plane's classes take at most, the
// last rows of two of them included.
constexpr int64_t kPlaneWords = kSegmentRuns + 2 * kRowLongWords + 1;

// The words of 64 bits with the flags of the groups of so many runs.
TF_GC_HOST_DEVICE constexpr int FlagWords(int64_t runs) {
  return static_cast<int>(FlagBytes(runs) / 8);
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_RUNS_CUH_
