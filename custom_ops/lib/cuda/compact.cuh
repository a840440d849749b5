// What packing and unpacking share on a GPU. A thread block takes a segment:
// all of its threads take codes apart or put them together, a run each, and the
// lanes of its first warp are the lanes of the coder.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_COMPACT_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_COMPACT_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "custom_ops/lib/codec/bits.h"
#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/cuda/team.cuh"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

static_assert(kCoderLanes == kWarp, "a lane of a warp is one of the coder");

constexpr int kWarps = kThreads / kWarp;  // of a thread block

TF_GC_HOST_DEVICE inline uint64_t LoadWord(const uint8_t* from) {
  return *reinterpret_cast<const uint64_t*>(from);
}
TF_GC_HOST_DEVICE inline void StoreWord(uint64_t word, uint8_t* to) {
  *reinterpret_cast<uint64_t*>(to) = word;
}

using Mask = BitMoves;

#include "custom_ops/lib/codec/half_block.inc"

// Calls run() with the codec as a type.
template <typename Run>
int ForCompactible(Codec codec, Run run) {
  switch (codec) {
    case Codec::kTwoBitFixed:
      return run(std::integral_constant<Codec, Codec::kTwoBitFixed>());
    case Codec::kTwoBitAuto:
      return run(std::integral_constant<Codec, Codec::kTwoBitAuto>());
    case Codec::kThreeBit:
      return run(std::integral_constant<Codec, Codec::kThreeBit>());
    case Codec::kFourBit:
      return run(std::integral_constant<Codec, Codec::kFourBit>());
    default:
      return cudaErrorInvalidValue;
  }
}

// Cuts memory into arrays, each of which starts at a multiple of 16 bytes.
class Cutter {
 public:
  explicit Cutter(uint8_t* memory)
      : start_(reinterpret_cast<uintptr_t>(memory)) {}

  template <typename T>
  T* Take(int64_t count) {
    T* const array = reinterpret_cast<T*>(start_ + static_cast<size_t>(size_));
    size_ = RoundUp(size_ + count * static_cast<int64_t>(sizeof(T)), 16);
    return array;
  }

  int64_t size() const { return size_; }

 private:
  uintptr_t start_;
  int64_t size_ = 0;
};

// ---- Sums over lanes and threads --------------------------------------------

// The sum over a lane and those below it. All lanes of a warp call it together.
template <typename T>
__device__ inline T SumUpTo(T value) {
  const unsigned lane = threadIdx.x % kWarp;
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const T below = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += below;
  }
  return value;
}

// The sum over all lanes of a warp, which call it together.
template <typename T>
__device__ inline T SumOfWarp(T value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}

template <typename T>
struct Sums {
  T before;  // of the threads before this one
  T all;
};

// All threads of a block call it together.
template <typename T>
__device__ inline Sums<T> SumOfBlock(T value) {
  __shared__ T of_warps[kWarps];
  const int warp = threadIdx.x / kWarp;
  const T up_to = SumUpTo(value);
  __syncthreads();  // The sums of the last call have been read.
  if (threadIdx.x % kWarp == kWarp - 1) of_warps[warp] = up_to;
  __syncthreads();
  Sums<T> sums = {up_to - value, 0};
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) sums.before += of_warps[i];
    sums.all += of_warps[i];
  }
  return sums;
}

// ---- Blocks that are not empty ----------------------------------------------

// Whether the blocks of a segment are empty, and how many before each are not.
struct FilledBlocks {
  uint8_t high[kSegmentBlocks];  // bytes of the scales, or kHighByteOfNone
  uint16_t before[kSegmentBlocks];

  __device__ bool Has(int block) const { return IsFilled(high[block]); }

  // Fills `before`, given the high bytes, which a barrier separates from the
  // call. All threads of a thread block call it together. Returns the number of
  // blocks that are not empty.
  __device__ int Count(int blocks) {
    int all = 0;
    for (int first = 0; first < blocks; first += kThreads) {
      const int block = first + static_cast<int>(threadIdx.x);
      const bool has = block < blocks && Has(block);
      const Sums<int> sums = SumOfBlock<int>(has);
      if (block < blocks)
        before[block] = static_cast<uint16_t>(all + sums.before);
      all += sums.all;
    }
    __syncthreads();
    return all;
  }
};

// ---- Copies -----------------------------------------------------------------

// Copies `bytes` bytes, a multiple of 8, with the threads of a block.
__device__ inline void CopyWords(const uint8_t* from, int64_t bytes,
                                 uint8_t* to) {
  for (int64_t i = threadIdx.x * 8; i < bytes; i += kThreads * 8) {
    StoreWord(LoadWord(from + i), to + i);
  }
}

// Copies a message of `bytes` bytes with the threads of all blocks.
__device__ inline void CopyMessage(const uint8_t* from, int64_t bytes,
                                   uint8_t* to) {
  for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < bytes / 16;
       i += gridDim.x * kThreads) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_COMPACT_CUH_
