// The ops Encode and Decode, on any device: read the attributes, validate,
// allocate, and leave the work to the device.
//
// `Device` is CpuDevice (cpu_device.h) or GpuDevice (gpu_device.h), which have
// a function for each op. The kernels validate all that a device gets, except
// the contents of the messages.

#pragma once

#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/bucket.h"
#include "custom_ops/kernels/density.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/wire/wire.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

template <typename Device, typename T>
class EncodeOp : public OpKernel {
 public:
  explicit EncodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadFormat(context, &format_));
    OP_REQUIRES_OK(context, context->GetAttr("shards", &shards_));
    OP_REQUIRES_OK(context, context->GetAttr("skip", &skip_));
    OP_REQUIRES(context, skip_ >= -1 && skip_ < shards_,
                absl::InvalidArgumentError(absl::StrCat(
                    "skip must be -1 (none) or the number of one of the ",
                    shards_, " shards, got ", skip_)));
    OP_REQUIRES(
        context, skip_ == -1 || IsAuto(format_.codec),
        absl::InvalidArgumentError(absl::StrCat(
            "skip must be -1 (none) for a fixed threshold, got ", skip_)));
  }

  void Compute(OpKernelContext* context) override {
    const OpInputList gradients = Inputs(context, "gradients");
    ResidualLock residuals;
    const bool automatic = IsAuto(format_.codec);
    OP_REQUIRES_OK(context,
                   residuals.Acquire(context, gradients,
                                     automatic ? DType::kInt8 : DType::kFloat));

    const Bucket bucket = BucketOf(gradients);
    const MessageLayout layout =
        format_.Layout(ShardBlocks(bucket.blocks(), shards_));
    TensorShape shape;
    OP_REQUIRES_OK(context, TensorShape::BuildTensorShape(
                                {shards_, layout.words()}, &shape));
    Tensor* message = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &message));
    uint8_t* rows = static_cast<uint8_t*>(message->data());
    OP_REQUIRES_OK(
        context, Device::template Encode<T>(context, format_, bucket, shards_,
                                            skip_, gradients, residuals, rows));
    residuals.Commit();
    // To read a message in a device's memory would stop the device at each
    // step.
    if constexpr (Device::kMessagesOnHost) Observe(gradients, layout, rows);
  }

 private:
  void Observe(const OpInputList& gradients, const MessageLayout& layout,
               const uint8_t* rows) {
    if (format_.codec != Codec::kTwoBitFixed || density_.done()) return;
    int64_t elements = 0;
    for (const Tensor& gradient : gradients) {
      elements += gradient.NumElements();
    }
    density_.Observe(format_.threshold, elements, layout, rows, shards_);
  }

  MessageFormat format_;
  int64_t shards_;
  int64_t skip_;
  DensityWatch density_;
};

template <typename Device, typename T>
class DecodeOp : public OpKernel {
 public:
  explicit DecodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadFormat(context, &format_));
  }

  void Compute(OpKernelContext* context) override {
    const OpInputList messages = Inputs(context, "messages");
    const OpInputList like = Inputs(context, "like");
    const Bucket bucket = BucketOf(like);
    std::vector<LibType<T>*> sums;
    OP_REQUIRES_OK(context, ForwardSums<T>(context, &sums));
    std::vector<const uint8_t*> rows;
    OP_REQUIRES_OK(
        context,
        FindMessages(messages, format_.Layout(bucket.blocks()), &rows));
    OP_REQUIRES(context, !rows.empty(),
                absl::InvalidArgumentError(
                    "`messages` holds no row, and needs at least one"));
    OP_REQUIRES_OK(context, Device::template Decode<T>(context, format_, bucket,
                                                       rows, sums));
  }

 private:
  MessageFormat format_;
};

}  // namespace tf_gc
