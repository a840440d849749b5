// A bucket as a sequence of blocks: which tensor and which shard a block
// belongs to.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

class Bucket {
 public:
  // A run of blocks inside one tensor.
  struct Run {
    int tensor;
    int64_t first_block;    // in the bucket
    int64_t first_element;  // in the tensor
    int64_t size;           // elements
  };

  void Add(int64_t elements) {
    sizes_.push_back(elements);
    starts_.push_back(starts_.back() + NumBlocks(elements));
  }

  int64_t blocks() const { return starts_.back(); }

  // The elements of a tensor.
  int64_t size(int tensor) const { return sizes_[tensor]; }

  // The blocks of a shard. The last shards of a bucket may have fewer than the
  // others, or none.
  struct Shard {
    int64_t first;
    int64_t last;

    int64_t blocks() const { return last - first; }
  };

  Shard ShardOf(int64_t shard, int64_t shards) const {
    const int64_t size = ShardBlocks(blocks(), shards);
    const int64_t first = std::min(blocks(), shard * size);
    return {first, std::min(blocks(), first + size)};
  }

  // Calls visit(Run) for each tensor that has blocks in [first, last).
  template <typename Visit>
  void ForEachRun(int64_t first, int64_t last, Visit visit) const {
    if (first >= last) return;
    auto next = std::upper_bound(starts_.begin(), starts_.end(), first);
    for (int i = static_cast<int>(next - starts_.begin()) - 1; first < last;
         ++i) {
      const int64_t end = std::min(last, starts_[i + 1]);
      if (first == end) continue;  // an empty tensor
      const int64_t begin_element = (first - starts_[i]) * kBlockSize;
      const int64_t end_element =
          std::min(sizes_[i], (end - starts_[i]) * kBlockSize);
      visit(Run{i, first, begin_element, end_element - begin_element});
      first = end;
    }
  }

  // Calls visit(Run, number of the shard, first block of the run in the shard)
  // for each tensor and shard that have blocks in [first, last).
  template <typename Visit>
  void ForEachShardRun(int64_t first, int64_t last, int64_t shards,
                       Visit visit) const {
    const int64_t size = ShardBlocks(blocks(), shards);
    while (first < last) {
      const int64_t shard = first / size;
      const int64_t start = shard * size;
      const int64_t end = std::min(last, start + size);
      ForEachRun(first, end, [&](const Run& run) {
        visit(run, shard, run.first_block - start);
      });
      first = end;
    }
  }

 private:
  std::vector<int64_t> sizes_;
  std::vector<int64_t> starts_ = {
      0};  // first block of each tensor, then the end
};

}  // namespace tf_gc
