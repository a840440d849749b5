// How the kernels of all devices see TensorFlow's tensors: as arrays of the
// library's types.

#ifndef TF_GC_CUSTOM_OPS_KERNELS_TENSORS_H_
#define TF_GC_CUSTOM_OPS_KERNELS_TENSORS_H_

#include <type_traits>
#include <vector>

#include "custom_ops/kernels/bucket.h"
#include "custom_ops/lib/numbers/floats.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"

namespace tf_gc {

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

// Makes the output list `sums` with the shapes of the input list `like`. An
// output takes over its input's buffer if nothing else needs that buffer.
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

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_KERNELS_TENSORS_H_
