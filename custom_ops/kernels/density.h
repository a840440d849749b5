// Warns a user whose fixed threshold is so large that next to nothing is sent.
// Only the CPU's kernels do this: to read a message in the memory of another
// device, a kernel would have to wait for the device in each step.

#pragma once

#include <atomic>
#include <cstdint>

#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// Counts what a kernel sends in the first kSteps steps. All kernels of the
// process that have the same threshold, for all buckets and replicas, add up
// their counts. If they sent less than one element in kRarely, one warning
// names the density.
class DensityWatch {
 public:
  static constexpr int kSteps = 100;
  static constexpr int64_t kRarely = 10000;

  // Counts the plus and minus codes of a bucket of `elements` elements, in
  // messages of kTwoBitFixed that follow each other.
  void Observe(float threshold, int64_t elements, const MessageLayout& layout,
               const uint8_t* messages, int64_t shards);

  // Whether Observe() has seen enough.
  bool done() const { return steps_.load(std::memory_order_relaxed) >= kSteps; }

 private:
  std::atomic<int> steps_{0};
  int64_t verdicts_before_ = 0;
};

}  // namespace tf_gc
