// CPU kernels of a codec's ops: validate, allocate, shard, call the library.
// `Family` is a codec with a fixed and an automatic variant:
//
//   // Reads the attributes that say what a message looks like. InvalidArgument
//   // if one is out of range.
//   static absl::Status ReadFormat(OpKernelConstruction*, MessageFormat*);
//   static constexpr Codec kAuto;

#ifndef TF_GC_CUSTOM_OPS_KERNELS_CODEC_KERNELS_H_
#define TF_GC_CUSTOM_OPS_KERNELS_CODEC_KERNELS_H_

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/bucket.h"
#include "custom_ops/kernels/cpu.h"
#include "custom_ops/kernels/density.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/lib/codec.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

template <typename Family, typename T>
class EncodeOp : public OpKernel {
 public:
  explicit EncodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, Family::ReadFormat(context, &format_));
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
      Encode(format_.codec, gradient, before, after, run.size,
             format_.threshold, layout.Codes(row, block),
             layout.Scales(row, block));
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
    if (format_.codec == Codec::kTwoBitFixed && !density_.done()) {
      int64_t elements = 0;
      for (const Tensor& gradient : gradients) {
        elements += gradient.NumElements();
      }
      density_.Observe(format_.threshold, elements, layout, rows, shards_);
    }
  }

 private:
  MessageFormat format_;
  int64_t shards_;
  int64_t skip_;
  DensityWatch density_;
};

template <typename Family, typename T>
class DecodeOp : public OpKernel {
 public:
  explicit DecodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, Family::ReadFormat(context, &format_));
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
                  DecodeSum(format_.codec, codes.data(), scales.data(),
                            replicas, run.size, format_.threshold, sum);
                });
              });
  }

 private:
  MessageFormat format_;
};

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_KERNELS_CODEC_KERNELS_H_
