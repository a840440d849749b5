// What the CPU kernels share: TensorFlow's types as the library's, and its
// threads.

#ifndef TF_GC_CUSTOM_OPS_KERNELS_CPU_H_
#define TF_GC_CUSTOM_OPS_KERNELS_CPU_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "custom_ops/kernels/bucket.h"
#include "custom_ops/lib/codec.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_gc {

// Nanoseconds for a block on one core. Shard() starts no thread for less than
// about 10 microseconds of work, so a small tensor stays on the caller's.
constexpr int64_t kEncodeBlockCost = 100;
constexpr int64_t kDecodeBlockCost = 40;  // for each message

// The library's type for TensorFlow's.
template <typename T>
using LibType = std::conditional_t<
    std::is_same_v<T, Eigen::half>, Half,
    std::conditional_t<std::is_same_v<T, Eigen::bfloat16>, BFloat16, T>>;

template <typename T>
const LibType<T>* Data(const tensorflow::Tensor& tensor) {
  return static_cast<const LibType<T>*>(tensor.data());
}

template <typename T>
LibType<T>* MutableData(tensorflow::Tensor* tensor) {
  return static_cast<LibType<T>*>(tensor->data());
}

inline Bucket BucketOf(const tensorflow::OpInputList& tensors) {
  Bucket bucket;
  for (const tensorflow::Tensor& tensor : tensors) {
    bucket.Add(tensor.NumElements());
  }
  return bucket;
}

// The output list `sums` in the shapes of the input list `like`, in its buffers
// where nothing else needs them.
template <typename T>
absl::Status ForwardSums(tensorflow::OpKernelContext* context,
                         std::vector<LibType<T>*>* sums) {
  int first;
  int end;
  TF_RETURN_IF_ERROR(context->op_kernel().InputRange("like", &first, &end));
  for (int i = first; i < end; ++i) {
    tensorflow::Tensor* sum = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(
        {i}, i - first, context->input(i).shape(), &sum));
    sums->push_back(MutableData<T>(sum));
  }
  return absl::OkStatus();
}

// Calls work(first, last) for parts of the blocks [0, blocks), in the threads
// of the device.
template <typename Work>
void ForBlocks(tensorflow::OpKernelContext* context, int64_t blocks,
               int64_t block_cost, Work work) {
  const auto& pool = *context->device()->tensorflow_cpu_worker_threads();
  tensorflow::Shard(pool.num_threads, pool.workers, blocks, block_cost, work);
}

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_KERNELS_CPU_H_
