// The work of the ops on GPUs: the library's kernels, in the device's stream.

#pragma once

#include <cstdint>
#include <vector>

#include "custom_ops/kernels/bucket.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/numbers/floats.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// Nothing here waits for the device. So it is the library's kernels that
// compare the headers of messages; from a message with a wrong header they make
// NaN.
class GpuDevice {
 public:
  static constexpr bool kMessagesOnHost = false;

  // The stream that the device's kernels are in.
  static CUstream_st* StreamOf(OpKernelContext* context);

  // Internal if `error` is one.
  static absl::Status Launched(int error);

  template <typename T>
  static absl::Status Encode(OpKernelContext* context,
                             const MessageFormat& format, const Bucket&,
                             int64_t shards, int64_t skip,
                             const OpInputList& gradients,
                             const ResidualLock& residuals, uint8_t* messages) {
    const std::vector<gpu::Gradient> tensors = Gradients(gradients, residuals);
    return Launched(gpu::Encode(format.codec, DTypeOf<LibType<T>>(),
                                tensors.data(), Size(tensors), shards, skip,
                                format.threshold, messages, StreamOf(context)));
  }

  template <typename T>
  static absl::Status Decode(OpKernelContext* context,
                             const MessageFormat& format, const Bucket& bucket,
                             const std::vector<const uint8_t*>& rows,
                             const std::vector<LibType<T>*>& sums) {
    const std::vector<gpu::Sum> tensors = Sums(bucket, sums);
    return Launched(gpu::DecodeSum(
        format.codec, DTypeOf<LibType<T>>(), rows.data(), Size(rows),
        tensors.data(), Size(tensors), format.threshold, StreamOf(context)));
  }

  template <typename T>
  static absl::Status Reencode(
      OpKernelContext* context, const MessageFormat& format,
      const MessageFormat& of_sum, const Bucket&, int64_t shards, int64_t shard,
      const std::vector<const uint8_t*>& others, const OpInputList& gradients,
      const ResidualLock& residuals, uint8_t* message) {
    const std::vector<gpu::Gradient> tensors = Gradients(gradients, residuals);
    return Launched(gpu::Reencode(format.codec, of_sum.codec,
                                  DTypeOf<LibType<T>>(), others.data(),
                                  Size(others), tensors.data(), Size(tensors),
                                  shard, shards, message, StreamOf(context)));
  }

  static absl::Status Count(OpKernelContext* context,
                            const MessageFormat& fixed, const MessageFormat&,
                            int64_t blocks,
                            const std::vector<const uint8_t*>& rows,
                            uint8_t* message) {
    return Launched(gpu::Count(fixed.codec, fixed.threshold, rows.data(),
                               Size(rows), blocks, message, StreamOf(context)));
  }

  template <typename T>
  static absl::Status DecodeShards(OpKernelContext* context,
                                   const MessageFormat& format,
                                   const Bucket& bucket,
                                   const std::vector<const uint8_t*>& rows,
                                   const std::vector<LibType<T>*>& sums) {
    const std::vector<gpu::Sum> tensors = Sums(bucket, sums);
    return Launched(gpu::DecodeShards(
        format.codec, DTypeOf<LibType<T>>(), rows.data(), Size(rows),
        tensors.data(), Size(tensors), format.threshold, StreamOf(context)));
  }

 private:
  template <typename Item>
  static int64_t Size(const std::vector<Item>& items) {
    return static_cast<int64_t>(items.size());
  }

  template <typename Number>
  static std::vector<gpu::Sum> Sums(const Bucket& bucket,
                                    const std::vector<Number*>& sums) {
    std::vector<gpu::Sum> tensors;
    for (size_t i = 0; i < sums.size(); ++i) {
      tensors.push_back({sums[i], bucket.size(static_cast<int>(i))});
    }
    return tensors;
  }

  static std::vector<gpu::Gradient> Gradients(const OpInputList& gradients,
                                              const ResidualLock& residuals);
};

}  // namespace tf_gc
