// Access to the residual variables of one op: to read them, or exclusive access
// to encode.

#pragma once

#include <cstdint>
#include <vector>

#include "custom_ops/kernels/tensors.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace tf_gc {

// Gives the values of the input list `residuals` of `context`, which stay as
// they are when an encode changes the variables. InvalidArgument if one is no
// initialized float32 variable of its gradient's shape.
absl::Status ReadResiduals(OpKernelContext* context,
                           const OpInputList& gradients,
                           std::vector<Tensor>* residuals);

// Looks the variables up and holds their locks until it is destroyed. A
// residual that somebody still reads is not written in place: the encode writes
// all of a new buffer, which Commit() gives to the variable.
class ResidualLock {
 public:
  // Null where nothing is kept.
  struct Buffers {
    const void* before;
    void* after;  // the same as `before`, or another array
    DType dtype;  // float32 or bfloat16

    // Those of an element and all after it.
    Buffers From(int64_t element) const {
      if (before == nullptr) return *this;
      const int64_t bytes = element * BytesOf(dtype);
      return {static_cast<const char*>(before) + bytes,
              static_cast<char*>(after) + bytes, dtype};
    }
  };

  // InvalidArgument as in ReadResiduals(), or if a variable occurs twice, or
  // there are neither none nor as many as shapes. `may_be_bfloat16`: instead of
  // float32.
  absl::Status Acquire(OpKernelContext* context,
                       const std::vector<TensorShape>& shapes,
                       bool may_be_bfloat16 = true);
  absl::Status Acquire(OpKernelContext* context, const OpInputList& gradients,
                       bool may_be_bfloat16 = true);

  const Buffers& buffers(int index) const { return buffers_[index]; }

  void Commit();

 private:
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<tensorflow::mutex_lock> locks_;
  std::vector<Tensor> replacements_;  // uninitialized where in place
  std::vector<Buffers> buffers_;
};

}  // namespace tf_gc
