// The tables that a launch passes to its kernel, by value: the tensors of a
// bucket, and the rows of messages.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc::gpu {

// The bytes of a kernel's parameters, and the tensors of a launch; a bucket of
// more takes several.
#if CUDART_VERSION >= 12010
constexpr int kMaxParamBytes = 32764;
constexpr int kMaxTensors = 256;
#else
constexpr int kMaxParamBytes = 4096;
constexpr int kMaxTensors = 56;
#endif

// The last of `count` >= 1 ascending starts that is not above `value`.
TF_GC_HOST_DEVICE inline int FindStart(const int* starts, int count,
                                       int value) {
  int first = 0;
  for (int last = count; last - first > 1;) {
    const int middle = (first + last) / 2;
    if (starts[middle] <= value) {
      first = middle;
    } else {
      last = middle;
    }
  }
  return first;
}

// Tensors that follow each other in a bucket, none of them empty. `Tensor` is
// Gradient or Sum.
template <typename Tensor>
struct TensorTable {
  int count;
  int starts[kMaxTensors + 1];  // first block of each tensor, then the end
  Tensor tensors[kMaxTensors];
  bool aligned[kMaxTensors];  // whether its arrays start at multiples of 16
};

// Finds the tensor that a block is in. Searches only if that is another tensor
// than the last block's.
template <typename Tensor>
struct TensorCursor {
  // Returns whether the table has the block.
  TF_GC_HOST_DEVICE bool Seek(const TensorTable<Tensor>& table, int block) {
    if (block >= start && block < end) return true;
    if (block < table.starts[0] || block >= table.starts[table.count]) {
      return false;
    }
    const int i = FindStart(table.starts, table.count, block);
    start = table.starts[i];
    end = table.starts[i + 1];
    tensor = table.tensors[i];
    aligned = table.aligned[i];
    return true;
  }

  // The first element of a block of the tensor, and how many it has.
  TF_GC_HOST_DEVICE int64_t First(int block) const {
    return (block - start) * kBlockSize;
  }
  TF_GC_HOST_DEVICE int Size(int block) const {
    return block + 1 < end ? static_cast<int>(kBlockSize)
                           : static_cast<int>(tensor.size - First(block));
  }

  int start = 0;
  int end = 0;
  Tensor tensor = {};
  bool aligned = false;
};

// The shard that a block is in. Most buckets have one, and a division takes
// time.
TF_GC_HOST_DEVICE inline int ShardOf(int block, int64_t shard_blocks) {
  const unsigned size = static_cast<unsigned>(shard_blocks);
  const unsigned number = static_cast<unsigned>(block);
  return number < size ? 0 : static_cast<int>(number / size);
}

// Messages of one layout, in groups that follow each other.
struct RowTable {
  int groups;
  int starts[kMaxRowGroups + 1];  // first row of each group, then the end
  const uint8_t* first[kMaxRowGroups];
  MessageLayout layout;
  MessageHeader header;  // that all of them should have

  TF_GC_HOST_DEVICE int count() const { return starts[groups]; }

  TF_GC_HOST_DEVICE const uint8_t* Row(int row) const {
    const int group = FindStart(starts, groups, row);
    return first[group] + (row - starts[group]) * layout.size;
  }
};

}  // namespace tf_gc::gpu
