// The order of a segment's blocks on a GPU if it has a period.

#ifndef TF_GC_CUSTOM_OPS_LIB_CUDA_ORDER_CUH_
#define TF_GC_CUSTOM_OPS_LIB_CUDA_ORDER_CUH_

#include <cstdint>

#include "custom_ops/lib/cuda/launch.h"
#include "custom_ops/lib/wire/compact_wire.h"

namespace tf_gc {
namespace gpu {

// Blocks that are sorted by their number modulo a period.
struct Remainders {
  int period;
  int blocks;

  // Where those with a remainder start.
  __device__ int First(int remainder) const {
    const int longer = blocks % period;  // so many have one block more
    return blocks / period * remainder +
           (remainder < longer ? remainder : longer);
  }
  // The most blocks that have the same remainder.
  __device__ int Most() const { return First(1); }
};

// Where a block goes from its place if, of the blocks with its remainder, each
// two groups of `width` are merged, in both of which scales ascend. All scales
// are in their places.
__device__ inline int MergedPlace(const Remainders& remainders, int block,
                                  int place, int width,
                                  const uint16_t* scales) {
  const int remainder = block % remainders.period;
  const int first = remainders.First(remainder);
  const int end = remainders.First(remainder + 1);
  const int in_group = (place - first) % width;
  const int group = place - in_group;
  const bool is_second = (place - first) / width % 2 != 0;
  // Of equal scales those in the first group come first.
  const int limit = scales[place] + (is_second ? 1 : 0);
  const int other = is_second ? group - width : group + width;
  const int start = other < end ? other : end;
  int low = start;
  int high = start + width < end ? start + width : end;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (scales[middle] < limit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return (is_second ? other : group) + in_group + (low - start);
}

// Fills `order` with the blocks of a segment as its period says. They are not
// sorted by scale if `scales` is null. `space` and `order`, in shared memory,
// have an element for each block. All threads of a block call it together
// and have a barrier after it.
__device__ inline void SortBlocks(int period, int blocks,
                                  const uint16_t* scales, uint16_t* space,
                                  uint16_t* order) {
  const Remainders remainders = {period, blocks};
  // A thread has the same blocks throughout.
  const auto for_blocks = [=](auto use) {
#pragma unroll 1  // Otherwise registers would be spilled.
    for (int i = threadIdx.x; i < blocks; i += kThreads) use(i);
  };
  uint16_t* const places = order;  // of the blocks, until these are sorted
  for_blocks([=](int block) {
    places[block] = static_cast<uint16_t>(remainders.First(block % period) +
                                          block / period);
  });
  if (scales != nullptr) {
    for (int width = 1; width < remainders.Most(); width *= 2) {
      for_blocks([=](int block) { space[places[block]] = scales[block]; });
      __syncthreads();
      for_blocks([=](int block) {
        places[block] = static_cast<uint16_t>(
            MergedPlace(remainders, block, places[block], width, space));
      });
      __syncthreads();
    }
  }
  for_blocks(
      [=](int block) { space[places[block]] = static_cast<uint16_t>(block); });
  __syncthreads();
  for_blocks([=](int i) { order[i] = space[i]; });
}

}  // namespace gpu
}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_CUDA_ORDER_CUH_
