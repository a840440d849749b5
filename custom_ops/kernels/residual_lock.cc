#include "custom_ops/kernels/residual_lock.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tf_gc {

namespace {

using ::tensorflow::Var;
using Variables = std::vector<tensorflow::core::RefCountPtr<Var>>;

absl::Status FindResiduals(OpKernelContext* context, Variables* variables) {
  int first_handle;
  int end_handle;
  TF_RETURN_IF_ERROR(
      context->op_kernel().InputRange("residuals", &first_handle, &end_handle));
  for (int i = first_handle; i < end_handle; ++i) {
    variables->emplace_back();
    TF_RETURN_IF_ERROR(tensorflow::LookupResource(
        context, tensorflow::HandleFromInput(context, i), &variables->back()));
  }
  return absl::OkStatus();
}

// kHalf, which no residual has, stands for all other dtypes.
DType DTypeOf(const Tensor& residual) {
  switch (residual.dtype()) {
    case tensorflow::DT_FLOAT:
      return DType::kFloat;
    case tensorflow::DT_BFLOAT16:
      return DType::kBFloat16;
    case tensorflow::DT_INT8:
      return DType::kInt8;
    default:
      return DType::kHalf;
  }
}

absl::Status CheckResidual(size_t index, const Tensor& residual,
                           const TensorShape& shape, DType smallest) {
  const DType dtype = DTypeOf(residual);
  TensorShape stored = shape;
  if (dtype == DType::kInt8) {
    stored = TensorShape({ResidualBytes(dtype, shape.num_elements())});
  }
  if (residual.IsInitialized() && dtype != DType::kHalf &&
      BytesOf(dtype) >= BytesOf(smallest) && residual.shape() == stored) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("residual ", index, " must be an initialized float32 ",
                   smallest == DType::kFloat ? "" : "or bfloat16 ",
                   "variable of its gradient's shape ", shape.DebugString(),
                   smallest == DType::kInt8 ? ", or an int8 vector for it" : "",
                   ", got ", residual.DebugString(0)));
}

}  // namespace

absl::Status ReadResiduals(OpKernelContext* context,
                           const OpInputList& gradients,
                           std::vector<Tensor>* residuals) {
  Variables variables;
  TF_RETURN_IF_ERROR(FindResiduals(context, &variables));
  for (size_t i = 0; i < variables.size(); ++i) {
    tensorflow::tf_shared_lock lock(*variables[i]->mu());
    residuals->push_back(*variables[i]->tensor());
    TF_RETURN_IF_ERROR(CheckResidual(i, residuals->back(), gradients[i].shape(),
                                     /*smallest=*/DType::kFloat));
  }
  return absl::OkStatus();
}

absl::Status ResidualLock::Acquire(OpKernelContext* context,
                                   const OpInputList& gradients,
                                   DType smallest) {
  std::vector<TensorShape> shapes;
  for (const Tensor& gradient : gradients) shapes.push_back(gradient.shape());
  return Acquire(context, shapes, smallest);
}

absl::Status ResidualLock::Acquire(OpKernelContext* context,
                                   const std::vector<TensorShape>& shapes,
                                   DType smallest) {
  TF_RETURN_IF_ERROR(FindResiduals(context, &variables_));
  if (variables_.empty()) {
    buffers_.resize(shapes.size(), {nullptr, nullptr, DType::kFloat});
  }
  if (!variables_.empty() && variables_.size() != shapes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("residuals must be none or one for each of ",
                     shapes.size(), " gradients, got ", variables_.size()));
  }
  std::vector<Var*> ordered;
  for (const auto& variable : variables_) ordered.push_back(variable.get());
  // Every encode takes the locks in the same order, so that no two encodes wait
  // for each other.
  std::sort(ordered.begin(), ordered.end());
  if (std::adjacent_find(ordered.begin(), ordered.end()) != ordered.end()) {
    return absl::InvalidArgumentError(
        "the same residual occurs twice in `residuals`");
  }
  locks_.reserve(ordered.size());
  for (Var* variable : ordered) locks_.emplace_back(*variable->mu());

  for (size_t i = 0; i < variables_.size(); ++i) {
    Tensor* residual = variables_[i]->tensor();
    TF_RETURN_IF_ERROR(CheckResidual(i, *residual, shapes[i], smallest));
    Tensor replacement;
    const void* before = residual->data();
    void* after = residual->data();
    if (!residual->RefCountIsOne()) {
      TF_RETURN_IF_ERROR(context->allocate_temp(
          residual->dtype(), residual->shape(), &replacement));
      after = replacement.data();
    }
    replacements_.push_back(std::move(replacement));
    buffers_.push_back({before, after, DTypeOf(*residual)});
  }
  return absl::OkStatus();
}

void ResidualLock::Commit() {
  for (size_t i = 0; i < replacements_.size(); ++i) {
    if (buffers_[i].after != buffers_[i].before)
      *variables_[i]->tensor() = replacements_[i];
  }
}

}  // namespace tf_gc
