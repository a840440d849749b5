// How the kernels see TensorFlow's tensors, as arrays of the library's types,
// and the threads of its CPU device.

#pragma once

#include <type_traits>
#include <vector>

#include "custom_ops/kernels/bucket.h"
#include "custom_ops/lib/numbers/floats.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_gc {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// The library's type for TensorFlow's.
template <typename T>
using LibType = std::conditional_t<
    std::is_same_v<T, Eigen::half>, Half,
    std::conditional_t<std::is_same_v<T, Eigen::bfloat16>, BFloat16, T>>;

template <typename T>
const LibType<T>* Data(const Tensor& tensor) {
  return static_cast<const LibType<T>*>(tensor.data());
}

template <typename T>
LibType<T>* MutableData(Tensor* tensor) {
  return static_cast<LibType<T>*>(tensor->data());
}

// The tensors of an input list that the op has.
inline OpInputList Inputs(OpKernelContext* context, const char* name) {
  OpInputList tensors;
  context->input_list(name, &tensors).IgnoreError();
  return tensors;
}

inline Bucket BucketOf(const OpInputList& tensors) {
  Bucket bucket;
  for (const Tensor& tensor : tensors) {
    bucket.Add(tensor.NumElements());
  }
  return bucket;
}

// Calls work(first, last) for parts of `count`, in the device's threads. `cost`
// is what one takes on one core, in nanoseconds.
template <typename Work>
void InThreads(OpKernelContext* context, int64_t count, int64_t cost,
               Work work) {
  const auto& pool = *context->device()->tensorflow_cpu_worker_threads();
  tensorflow::Shard(pool.num_threads, pool.workers, count, cost, work);
}

// Makes the output list `sums` with the shapes of the input list `like`. An
// output takes over its input's buffer if nothing else needs that buffer.
template <typename T>
absl::Status ForwardSums(OpKernelContext* context,
                         std::vector<LibType<T>*>* sums) {
  int first;
  int end;
  TF_RETURN_IF_ERROR(context->op_kernel().InputRange("like", &first, &end));
  for (int i = first; i < end; ++i) {
    Tensor* sum = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(
        {i}, i - first, context->input(i).shape(), &sum));
    sums->push_back(MutableData<T>(sum));
  }
  return absl::OkStatus();
}

// Registers NAME##Op<T> on the CPU, for the dtypes of gradients.
#define TF_GC_REGISTER_ON_CPU(NAME)             \
  TF_GC_REGISTER_ON_CPU_FOR(NAME, float);       \
  TF_GC_REGISTER_ON_CPU_FOR(NAME, Eigen::half); \
  TF_GC_REGISTER_ON_CPU_FOR(NAME, Eigen::bfloat16)
#define TF_GC_REGISTER_ON_CPU_FOR(NAME, T)                    \
  REGISTER_KERNEL_BUILDER(Name("TfGc>" #NAME)                 \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          NAME##Op<T>)

}  // namespace tf_gc
