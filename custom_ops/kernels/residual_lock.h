// Access to the residual variables of one op: to read them, or exclusive access
// to encode.

#pragma once

#include <cstdint>
#include <vector>

#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/codec/eight_bit_block.h"
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
    DType dtype;  // float32, bfloat16 or int8

    // Those of an element, the first one of a block, and all after it.
    Buffers From(int64_t element) const {
      if (before == nullptr) return *this;
      const int64_t bytes = ResidualBytes(dtype, element);
      return {static_cast<const char*>(before) + bytes,
              static_cast<char*>(after) + bytes, dtype};
    }
  };

  // InvalidArgument as in ReadResiduals(), or if a variable occurs twice, or
  // there are neither none nor as many as shapes. They are `smallest` or a
  // larger one of float32, bfloat16 and int8, which is a vector of
  // ResidualBytes().
  absl::Status Acquire(OpKernelContext* context,
                       const std::vector<TensorShape>& shapes, DType smallest);
  absl::Status Acquire(OpKernelContext* context, const OpInputList& gradients,
                       DType smallest = DType::kInt8);

  const Buffers& buffers(int index) const { return buffers_[index]; }

  void Commit();

 private:
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables_;
  std::vector<tensorflow::mutex_lock> locks_;
  std::vector<Tensor> replacements_;  // uninitialized where in place
  std::vector<Buffers> buffers_;
};

}  // namespace tf_gc
