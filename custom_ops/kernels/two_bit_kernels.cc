// CPU kernels of the two-bit ops: validate, allocate, shard, call the library.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/bucket.h"
#include "custom_ops/kernels/cpu.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/lib/two_bit.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

template <typename T>
class TwoBitEncodeOp : public OpKernel {
 public:
  explicit TwoBitEncodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadFormat(context, &format_));
    OP_REQUIRES_OK(context, context->GetAttr("shards", &shards_));
    OP_REQUIRES_OK(context, context->GetAttr("skip", &skip_));
    OP_REQUIRES(context, skip_ >= -1 && skip_ < shards_,
                absl::InvalidArgumentError(absl::StrCat(
                    "skip must be -1 (none) or the number of one of the ",
                    shards_, " shards, got ", skip_)));
    OP_REQUIRES(
        context, skip_ == -1 || format_.codec == Codec::kTwoBitAuto,
        absl::InvalidArgumentError(absl::StrCat(
            "skip must be -1 (none) for a fixed threshold, got ", skip_)));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    ResidualLock residuals;
    OP_REQUIRES_OK(context, residuals.Acquire(context, gradients));

    const Bucket bucket = BucketOf(gradients);
    const MessageLayout layout =
        format_.Layout(ShardBlocks(bucket.blocks(), shards_));
    TensorShape shape;
    OP_REQUIRES_OK(context, TensorShape::BuildTensorShape(
                                {shards_, layout.words()}, &shape));
    Tensor* message = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &message));
    uint8_t* rows = static_cast<uint8_t*>(message->data());
    for (int64_t i = 0; i < shards_; ++i) {
      const int64_t used = i == skip_ ? 0 : bucket.ShardOf(i, shards_).blocks();
      format_.WriteFrame(layout, used, rows + i * layout.size);
    }

    Bucket::Shard skipped = {bucket.blocks(), bucket.blocks()};
    if (skip_ != -1) skipped = bucket.ShardOf(skip_, shards_);
    residuals.Keep(bucket, skipped.first, skipped.last);

    const auto encode_run = [&](const Bucket::Run& run, int64_t shard,
                                int64_t block) {
      const ResidualLock::Buffers& residual = residuals.buffers(run.tensor);
      const LibType<T>* gradient =
          Data<T>(gradients[run.tensor]) + run.first_element;
      const float* before = residual.before + run.first_element;
      float* after = residual.after + run.first_element;
      uint8_t* row = rows + shard * layout.size;
      uint8_t* codes = layout.Codes(row, block);
      if (format_.codec == Codec::kTwoBitFixed) {
        EncodeFixed(gradient, before, after, run.size, format_.threshold,
                    codes);
      } else {
        EncodeAuto(gradient, before, after, run.size, codes,
                   layout.Scales(row, block));
      }
    };
    // The blocks that are not skipped, which follow each other for ForBlocks().
    ForBlocks(context, bucket.blocks() - skipped.blocks(), kEncodeBlockCost,
              [&](int64_t first, int64_t last) {
                bucket.ForEachShardRun(first, std::min(last, skipped.first),
                                       shards_, encode_run);
                bucket.ForEachShardRun(
                    std::max(first, skipped.first) + skipped.blocks(),
                    last + skipped.blocks(), shards_, encode_run);
              });
    residuals.Commit();
  }

 private:
  MessageFormat format_;
  int64_t shards_;
  int64_t skip_;
};

template <typename T>
class TwoBitDecodeOp : public OpKernel {
 public:
  explicit TwoBitDecodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadFormat(context, &format_));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList messages;
    OpInputList like;
    OP_REQUIRES_OK(context, context->input_list("messages", &messages));
    OP_REQUIRES_OK(context, context->input_list("like", &like));
    const Bucket bucket = BucketOf(like);
    const MessageLayout layout = format_.Layout(bucket.blocks());
    std::vector<LibType<T>*> sums;
    OP_REQUIRES_OK(context, ForwardSums<T>(context, &sums));
    std::vector<const uint8_t*> rows;
    OP_REQUIRES_OK(context, format_.ReadRows(messages, layout, -1, &rows));
    OP_REQUIRES(context, !rows.empty(),
                absl::InvalidArgumentError(
                    "`messages` holds no row, and needs at least one"));

    const int64_t replicas = static_cast<int64_t>(rows.size());
    ForBlocks(context, layout.blocks, kDecodeBlockCost * replicas,
              [&](int64_t first, int64_t last) {
                std::vector<const uint8_t*> codes(replicas);
                std::vector<const uint16_t*> scales(replicas);
                bucket.ForEachRun(first, last, [&](const Bucket::Run& run) {
                  for (int64_t r = 0; r < replicas; ++r) {
                    codes[r] = layout.Codes(rows[r], run.first_block);
                    scales[r] = layout.Scales(rows[r], run.first_block);
                  }
                  LibType<T>* sum = sums[run.tensor] + run.first_element;
                  if (format_.codec == Codec::kTwoBitFixed) {
                    DecodeSumFixed(codes.data(), replicas, run.size,
                                   format_.threshold, sum);
                  } else {
                    DecodeSumAuto(codes.data(), scales.data(), replicas,
                                  run.size, sum);
                  }
                });
              });
  }

 private:
  MessageFormat format_;
};

#define REGISTER(T)                                           \
  REGISTER_KERNEL_BUILDER(Name("TfGc>TwoBitEncode")           \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          TwoBitEncodeOp<T>);                 \
  REGISTER_KERNEL_BUILDER(Name("TfGc>TwoBitDecode")           \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          TwoBitDecodeOp<T>)

REGISTER(float);
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);
#undef REGISTER

}  // namespace
}  // namespace tf_gc
