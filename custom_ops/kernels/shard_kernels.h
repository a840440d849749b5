// The ops of the second stage, on any device: the replica that owns a shard
// sums it and sends the sum to all. `Device` is as in codec_kernels.h.

#pragma once

#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/bucket.h"
#include "custom_ops/kernels/codec_kernels.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

template <typename Device, typename T>
class ReencodeOp : public OpKernel {
 public:
  explicit ReencodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shard", &shard_));
    OP_REQUIRES_OK(context, context->GetAttr("shards", &shards_));
    OP_REQUIRES(context, shard_ >= 0 && shard_ < shards_,
                absl::InvalidArgumentError(
                    absl::StrCat("shard must be the number of one of the ",
                                 shards_, " shards, got ", shard_)));
    OP_REQUIRES_OK(context,
                   ReadSumCodecs(context, &format_.codec, &of_sum_.codec));
  }

  void Compute(OpKernelContext* context) override {
    const OpInputList messages = Inputs(context, "messages");
    const OpInputList gradients = Inputs(context, "gradients");
    const Bucket bucket = BucketOf(gradients);
    const int64_t shard_blocks = ShardBlocks(bucket.blocks(), shards_);
    std::vector<const uint8_t*> rows;
    OP_REQUIRES_OK(context,
                   FindMessages(messages, format_.Layout(shard_blocks), &rows));
    OP_REQUIRES_OK(context, CheckRows(rows, "shards", shards_));
    rows.erase(rows.begin() + shard_);

    ResidualLock residuals;
    OP_REQUIRES_OK(context, residuals.Acquire(context, gradients));
    Tensor* message = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(
                     0, TensorShape({1, of_sum_.Layout(shard_blocks).words()}),
                     &message));
    OP_REQUIRES_OK(context, Device::template Reencode<T>(
                                context, format_, of_sum_, bucket, shards_,
                                shard_, rows, gradients, residuals,
                                static_cast<uint8_t*>(message->data())));
    residuals.Commit();
  }

 private:
  MessageFormat format_ = {kNoCodec, 0.0f};
  MessageFormat of_sum_ = {kNoCodec, 0.0f};
  int64_t shard_;
  int64_t shards_;
};

template <typename Device>
class CountOp : public OpKernel {
 public:
  explicit CountOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadFixedFormat(context, &fixed_));
    OP_REQUIRES_OK(context, ReadCountsFormat(context, fixed_, &counts_));
    OP_REQUIRES_OK(context, context->GetAttr("replicas", &replicas_));
  }

  void Compute(OpKernelContext* context) override {
    const OpInputList messages = Inputs(context, "messages");
    MessageLayout layout;
    OP_REQUIRES_OK(context, ReadLayout(fixed_.codec, messages[0], &layout));
    std::vector<const uint8_t*> rows;
    OP_REQUIRES_OK(context, FindMessages(messages, layout, &rows));
    OP_REQUIRES_OK(context, CheckRows(rows, "replicas", replicas_));

    Tensor* message = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(
                     0, TensorShape({1, counts_.Layout(layout.blocks).words()}),
                     &message));
    OP_REQUIRES_OK(context,
                   Device::Count(context, fixed_, counts_, layout.blocks, rows,
                                 static_cast<uint8_t*>(message->data())));
  }

 private:
  MessageFormat fixed_;
  MessageFormat counts_;
  int64_t replicas_;
};

template <typename Device, typename T>
class DecodeShardsOp : public OpKernel {
 public:
  explicit DecodeShardsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadFormat(context, &format_));
    OP_REQUIRES_OK(context, context->GetAttr("shards", &shards_));
    if (IsFixed(format_.codec)) {
      OP_REQUIRES_OK(context, ReadCountsFormat(context, format_, &format_));
    }
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
        FindMessages(messages,
                     format_.Layout(ShardBlocks(bucket.blocks(), shards_)),
                     &rows));
    OP_REQUIRES_OK(context, CheckRows(rows, "shards", shards_));
    OP_REQUIRES_OK(context, Device::template DecodeShards<T>(
                                context, format_, bucket, rows, sums));
  }

 private:
  MessageFormat format_;
  int64_t shards_;
};

// Registers the kernels for gradients of a dtype. A handle of a residual is in
// host memory; the residual itself is where the device is.
#define TF_GC_REGISTER_KERNELS_OF(type, OnDevice, T)                 \
  REGISTER_KERNEL_BUILDER(Name("TfGc>Encode")                        \
                              .Device(type)                          \
                              .HostMemory("residuals")               \
                              .TypeConstraint<T>("T"),               \
                          EncodeOp<OnDevice, T>);                    \
  REGISTER_KERNEL_BUILDER(                                           \
      Name("TfGc>Decode").Device(type).TypeConstraint<T>("T"),       \
      DecodeOp<OnDevice, T>);                                        \
  REGISTER_KERNEL_BUILDER(Name("TfGc>Reencode")                      \
                              .Device(type)                          \
                              .HostMemory("residuals")               \
                              .TypeConstraint<T>("T"),               \
                          ReencodeOp<OnDevice, T>);                  \
  REGISTER_KERNEL_BUILDER(                                           \
      Name("TfGc>DecodeShards").Device(type).TypeConstraint<T>("T"), \
      DecodeShardsOp<OnDevice, T>)

// Registers the kernels of all ops on a device that TensorFlow calls `type`.
#define TF_GC_REGISTER_KERNELS(type, OnDevice)                \
  TF_GC_REGISTER_KERNELS_OF(type, OnDevice, float);           \
  TF_GC_REGISTER_KERNELS_OF(type, OnDevice, Eigen::half);     \
  TF_GC_REGISTER_KERNELS_OF(type, OnDevice, Eigen::bfloat16); \
  REGISTER_KERNEL_BUILDER(Name("TfGc>Count").Device(type), CountOp<OnDevice>)

}  // namespace tf_gc
