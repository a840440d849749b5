// Launching: tables of a bucket's tensors and of rows, types, and grids.

#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/cuda/messages.cuh"
#include "custom_ops/lib/cuda/tables.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc::gpu {

constexpr int kThreads = 256;  // of a thread block

// Kernels number blocks with ints. A bucket has fewer blocks than this, so that
// a loop can add the size of the grid to the number of its last block.
constexpr int64_t kEndOfBlocks = int64_t{1} << 30;

inline bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}
inline bool IsAligned(const Gradient& tensor) {
  return IsAligned(tensor.gradient) && IsAligned(tensor.residual_in) &&
         IsAligned(tensor.residual_out);
}
inline bool IsAligned(const Sum& tensor) { return IsAligned(tensor.sum); }

template <typename Tensor>
int64_t BlocksOf(const Tensor* tensors, int64_t count) {
  int64_t blocks = 0;
  for (int64_t i = 0; i < count; ++i) blocks += NumBlocks(tensors[i].size);
  return blocks;
}

// Fills `table` with the tensors of one launch after the other and calls
// launch(first block, end, whether it is the last). At least once. Returns the
// first error.
template <typename Tensor, typename Launch>
int ForTables(const Tensor* tensors, int64_t count, TensorTable<Tensor>* table,
              Launch launch) {
  int64_t next = 0;
  int block = 0;
  do {
    table->count = 0;
    table->starts[0] = block;
    for (; next < count && table->count < kMaxTensors; ++next) {
      if (tensors[next].size == 0) continue;
      const int i = table->count++;
      table->tensors[i] = tensors[next];
      table->aligned[i] = IsAligned(tensors[next]);
      block += static_cast<int>(NumBlocks(tensors[next].size));
      table->starts[i + 1] = block;
    }
    const int error = launch(table->starts[0], block, next == count);
    if (error != cudaSuccess) return error;
  } while (next < count);
  return cudaSuccess;
}

// Fills a table with rows of `codec` with `blocks` blocks.
inline int FillRows(Codec codec, int64_t blocks, float threshold,
                    const uint8_t* const* rows, int64_t count,
                    RowTable* table) {
  if (count >= kEndOfBlocks) return cudaErrorInvalidValue;
  table->groups = 0;
  table->starts[0] = 0;
  table->layout = LayoutOf(codec, blocks);
  table->header = HeaderOf(codec, blocks, threshold);
  for (int64_t i = 0; i < count; ++i) {
    if (!IsAligned(rows[i])) return cudaErrorMisalignedAddress;
    if (i == 0 || rows[i] != rows[i - 1] + table->layout.size) {
      if (table->groups == kMaxRowGroups) return cudaErrorInvalidValue;
      table->first[table->groups++] = rows[i];
    }
    table->starts[table->groups] = static_cast<int>(i + 1);
  }
  return cudaSuccess;
}

// Launches a kernel for `blocks` blocks. Each thread block takes
// `blocks_at_once` of them at once. There is at least one thread block, and
// there are no more than run at once with `per_multiprocessor` on each
// multiprocessor.
template <typename Params>
int Launch(void (*kernel)(Params), const Params& params, int64_t blocks,
           int blocks_at_once, int per_multiprocessor, cudaStream_t stream) {
  static_assert(sizeof(Params) <= kMaxParamBytes);
  int device;
  int multiprocessors;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors,
                                 cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const int64_t needed = (blocks + blocks_at_once - 1) / blocks_at_once;
  const int64_t most = multiprocessors * per_multiprocessor;
  const int64_t grid = std::max<int64_t>(1, std::min(needed, most));
  void* arguments[] = {const_cast<Params*>(&params)};
  return cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(grid)),
                          dim3(kThreads), arguments, 0, stream);
}

// Calls `call` with the definition of a codec with automatic scales, and with
// its decoder.
template <typename Call>
int ForAutomatic(Codec codec, const Call& call) {
  switch (codec) {
    case Codec::kTwoBitAuto:
      return call(TwoBitAuto(), TwoBitDecoder<true>());
    case Codec::kOneBitAuto:
      return call(OneBitAuto(), OneBitDecoder());
    case Codec::kThreeBit:
      return call(ThreeBit(), ThreeBitDecoder());
    case Codec::kFourBit:
      return call(FourBit(), FourBitDecoder());
    case Codec::kEightBit:
      return call(EightBit(), EightBitDecoder());
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tf_gc::gpu
