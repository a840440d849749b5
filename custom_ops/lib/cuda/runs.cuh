// The runs of a segment on a GPU: a thread has a run. Where its codes are, and
// how they become bits of the planes.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_RUNS_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_RUNS_CUH_

#include <cstdint>

#include "custom_ops/lib/cuda/compact.cuh"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

static_assert(kThreads % kBlockSize == 0, "a thread block has whole tiles");

template <Codec kCodec>
using Codes = HalfBlock<MagnitudeBits(kCodec)>;

// ---- The order --------------------------------------------------------------

// The number of the block at a position if `blocks` blocks are sorted by their
// number modulo the period.
__device__ inline int SortedBlock(int position, int period, int blocks) {
  // The first `longer` remainders have one block more than the others.
  const int least = blocks / period;
  const int longer = blocks % period;
  const int in_longer = longer * (least + 1);
  if (position < in_longer) {
    return position % (least + 1) * period + position / (least + 1);
  }
  position -= in_longer;
  return position % least * period + longer + position / least;
}

// A thread loads and stores half a block for each run, whose bits are those of
// the run after Transpose(): in a tile, run `64 * half + i` gets half `half` of
// block i.
struct Runs {
  int count;
  int in_tiles;            // the first of them
  const uint16_t* blocks;  // in their new order, or those that are not empty

  __device__ bool IsInTile(int run) const { return run < in_tiles; }
  __device__ int Block(int run) const {
    return blocks[IsInTile(run) ? run / kBlockSize * kRun + run % kRun
                                : run / kHalves];
  }
  __device__ int Half(int run) const {
    return static_cast<int>(IsInTile(run) ? run % kBlockSize / kRun
                                          : run % kHalves);
  }
};

// The runs of a segment. Fills `order`, which they point at. All threads of a
// block call it together.
__device__ inline Runs RunsOf(int period, int blocks, int filled_blocks,
                              const FilledBlocks& filled, uint16_t* order) {
  __syncthreads();  // The last order has been used.
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    if (period != 0) {
      order[i] = static_cast<uint16_t>(SortedBlock(i, period, blocks));
    } else if (filled.Has(i)) {
      order[filled.before[i]] = static_cast<uint16_t>(i);
    }
  }
  __syncthreads();
  constexpr int kTileRuns = static_cast<int>(tf_gc::kTileRuns);
  if (period == 0) {
    return {filled_blocks * static_cast<int>(kHalves), 0, order};
  }
  return {blocks * static_cast<int>(kHalves),
          blocks / static_cast<int>(kRun) * kTileRuns, order};
}

// ---- Rows and columns of tiles ----------------------------------------------

// The codes that the threads of a block show each other, in shared memory.
template <Codec kCodec>
struct Exchange {
  Codes<kCodec> of_threads[kThreads];
};

// Of the codes of each kRun threads, swaps rows and columns if they are in a
// tile. All threads of a block call it together.
template <Codec kCodec>
__device__ void Transpose(bool in_tile, Codes<kCodec>* codes,
                          Exchange<kCodec>* exchange) {
  const int thread = threadIdx.x;
  __syncthreads();  // The codes of the last call have been read.
  exchange->of_threads[thread] = *codes;
  __syncthreads();
  if (!in_tile) return;
  constexpr int kSize = static_cast<int>(kRun);
  const int column = thread % kSize;
  const Codes<kCodec>* const rows = exchange->of_threads + thread - column;
  *codes = {};
  for (int row = 0; row < kSize; ++row) {
    const auto bit = [=](uint64_t bits) { return (bits >> column & 1) << row; };
    for (int i = 0; i < MagnitudeBits(kCodec); ++i) {
      codes->magnitudes[i] |= bit(rows[row].magnitudes[i]);
    }
    codes->sign |= bit(rows[row].sign);
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
  for (int first = 0; first < runs.count; first += kThreads) {
    const int run = first + static_cast<int>(threadIdx.x);
    Codes<kCodec> of_run = {};
    if (run < runs.count) {
      of_run = LoadHalf<kCodec>(codes, runs.Block(run), runs.Half(run));
    }
    Transpose<kCodec>(runs.IsInTile(run), &of_run, exchange);
    use(run, of_run);
  }
}

// ---- Planes -----------------------------------------------------------------

template <Codec kCodec>
__device__ uint64_t NonzeroOf(const Codes<kCodec>& codes) {
  return codes.magnitudes[0] | codes.Common();
}

// The bits of a run in each plane.
template <Codec kCodec>
struct PlaneBits {
  static constexpr int kPlanes = NumPlanes(kCodec);
  uint64_t bits[kPlanes];
  int sizes[kPlanes];

  __device__ explicit PlaneBits(const Codes<kCodec>& codes) {
    constexpr int kBits = MagnitudeBits(kCodec);
    const Mask nonzero(NonzeroOf<kCodec>(codes));
    const int nonzeros = __popcll(nonzero.mask);
    Set(0, nonzero.mask, static_cast<int>(kRun));
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
constexpr int kRowWords = kCoderLanes / 8;  // of 64 bits

// The words of 64 bits that the streams of a plane's classes take at most, the
// last rows of two of them included.
constexpr int64_t kPlaneWords = kSegmentRuns + 2 * kRowWords + 1;

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_RUNS_CUH_
