// CPU kernels of the second stage: the replica that owns a shard sums it and
// sends the sum to all. `Family` is as in codec_kernels.h.

#ifndef TF_GC_CUSTOM_OPS_KERNELS_SHARD_KERNELS_H_
#define TF_GC_CUSTOM_OPS_KERNELS_SHARD_KERNELS_H_

#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/bucket.h"
#include "custom_ops/kernels/codec_kernels.h"
#include "custom_ops/kernels/cpu.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/lib/codec.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// Nanoseconds for a block on one core.
constexpr int64_t kAddBlockCost = 10;   // for each message
constexpr int64_t kCountBlockCost = 5;  // for each message
constexpr int64_t kStoreCountsCost = 20;

template <typename Family, typename T>
class ReencodeOp : public OpKernel {
 public:
  explicit ReencodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shard", &shard_));
    OP_REQUIRES_OK(context, context->GetAttr("shards", &shards_));
    OP_REQUIRES(context, shard_ >= 0 && shard_ < shards_,
                absl::InvalidArgumentError(
                    absl::StrCat("shard must be the number of one of the ",
                                 shards_, " shards, got ", shard_)));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList messages;
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("messages", &messages));
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    const Bucket bucket = BucketOf(gradients);
    const Bucket::Shard own = bucket.ShardOf(shard_, shards_);
    const MessageFormat format = {Family::kAuto, 0.0f};
    const MessageLayout layout =
        format.Layout(ShardBlocks(bucket.blocks(), shards_));
    std::vector<const uint8_t*> rows;
    OP_REQUIRES_OK(context, format.ReadRows(messages, layout, shard_, &rows));
    OP_REQUIRES_OK(context, CheckRows(rows, "shards", shards_));
    rows.erase(rows.begin() + shard_);

    ResidualLock residuals;
    OP_REQUIRES_OK(context, residuals.Acquire(context, gradients));
    Tensor* message = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({1, layout.words()}), &message));
    uint8_t* bytes = static_cast<uint8_t*>(message->data());
    format.WriteFrame(layout, own.blocks(), bytes);
    residuals.Keep(bucket, 0, own.first);
    residuals.Keep(bucket, own.last, bucket.blocks());

    const int64_t others = static_cast<int64_t>(rows.size());
    const int64_t cost = kEncodeBlockCost + kAddBlockCost * others;
    ForBlocks(context, own.blocks(), cost, [&](int64_t first, int64_t last) {
      std::vector<const uint8_t*> codes(others);
      std::vector<const uint16_t*> scales(others);
      bucket.ForEachRun(
          own.first + first, own.first + last, [&](const Bucket::Run& run) {
            const int64_t block = run.first_block - own.first;
            for (int64_t r = 0; r < others; ++r) {
              codes[r] = layout.Codes(rows[r], block);
              scales[r] = layout.Scales(rows[r], block);
            }
            const ResidualLock::Buffers& residual =
                residuals.buffers(run.tensor);
            Reencode(format.codec, codes.data(), scales.data(), others,
                     Data<T>(gradients[run.tensor]) + run.first_element,
                     residual.before + run.first_element,
                     residual.after + run.first_element, run.size,
                     layout.Codes(bytes, block), layout.Scales(bytes, block));
          });
    });
    residuals.Commit();
  }

 private:
  int64_t shard_;
  int64_t shards_;
};

template <typename Family>
class CountOp : public OpKernel {
 public:
  explicit CountOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, Family::ReadFormat(context, &fixed_));
    OP_REQUIRES_OK(context, ReadCountsFormat(context, fixed_, &counts_));
    OP_REQUIRES_OK(context, context->GetAttr("replicas", &replicas_));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList messages;
    OP_REQUIRES_OK(context, context->input_list("messages", &messages));
    const TensorShape& shape = messages[0].shape();
    const int64_t blocks =
        shape.dims() == 2 ? BlocksOf(fixed_.codec, shape.dim_size(1)) : -1;
    OP_REQUIRES(context, blocks >= 0,
                absl::InvalidArgumentError(absl::StrCat(
                    "messages must have the shape [rows, words] of messages "
                    "with a fixed threshold, got ",
                    shape.DebugString())));
    std::vector<const uint8_t*> rows;
    OP_REQUIRES_OK(context,
                   fixed_.ReadRows(messages, fixed_.Layout(blocks), -1, &rows));
    OP_REQUIRES_OK(context, CheckRows(rows, "replicas", replicas_));

    const MessageLayout from = fixed_.Layout(blocks);
    const MessageLayout to = counts_.Layout(blocks);
    Tensor* message = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({1, to.words()}), &message));
    uint8_t* bytes = static_cast<uint8_t*>(message->data());
    counts_.WriteFrame(to, blocks, bytes);
    ForBlocks(context, blocks, kStoreCountsCost + kCountBlockCost * replicas_,
              [&](int64_t first, int64_t last) {
                std::vector<const uint8_t*> codes;
                std::vector<const uint16_t*> scales;
                for (const uint8_t* row : rows) {
                  codes.push_back(from.Codes(row, first));
                  scales.push_back(from.Scales(row, first));
                }
                Count(fixed_.codec, codes.data(), scales.data(), replicas_,
                      last - first, CountBits(replicas_),
                      to.Codes(bytes, first));
              });
  }

 private:
  MessageFormat fixed_;
  MessageFormat counts_;
  int64_t replicas_;
};

template <typename Family, typename T>
class DecodeShardsOp : public OpKernel {
 public:
  explicit DecodeShardsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, Family::ReadFormat(context, &format_));
    OP_REQUIRES_OK(context, context->GetAttr("shards", &shards_));
    OP_REQUIRES_OK(context, context->GetAttr("replicas", &replicas_));
    if (IsFixed(format_.codec)) {
      OP_REQUIRES_OK(context, ReadCountsFormat(context, format_, &format_));
    }
  }

  void Compute(OpKernelContext* context) override {
    OpInputList messages;
    OpInputList like;
    OP_REQUIRES_OK(context, context->input_list("messages", &messages));
    OP_REQUIRES_OK(context, context->input_list("like", &like));
    const Bucket bucket = BucketOf(like);
    const MessageLayout layout =
        format_.Layout(ShardBlocks(bucket.blocks(), shards_));
    std::vector<LibType<T>*> sums;
    OP_REQUIRES_OK(context, ForwardSums<T>(context, &sums));
    std::vector<const uint8_t*> rows;
    OP_REQUIRES_OK(context, format_.ReadRows(messages, layout, -1, &rows));
    OP_REQUIRES_OK(context, CheckRows(rows, "shards", shards_));

    ForBlocks(context, bucket.blocks(), kDecodeBlockCost,
              [&](int64_t first, int64_t last) {
                bucket.ForEachShardRun(
                    first, last, shards_,
                    [&](const Bucket::Run& run, int64_t shard, int64_t block) {
                      const uint8_t* codes = layout.Codes(rows[shard], block);
                      const uint16_t* scales =
                          layout.Scales(rows[shard], block);
                      LibType<T>* sum = sums[run.tensor] + run.first_element;
                      if (IsAuto(format_.codec)) {
                        DecodeSum(format_.codec, &codes, &scales, 1, run.size,
                                  0.0f, sum);
                      } else {
                        DecodeCounts(codes, CountBits(replicas_), run.size,
                                     format_.threshold, sum);
                      }
                    });
              });
  }

 private:
  MessageFormat format_;
  int64_t shards_;
  int64_t replicas_;
};

#define TF_GC_REGISTER_T(name, Op, Family, T)                 \
  REGISTER_KERNEL_BUILDER(Name("TfGc>" name)                  \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),        \
                          Op<Family, T>)

// Registers an op that has an attribute T.
#define TF_GC_REGISTER(name, Op, Family)           \
  TF_GC_REGISTER_T(name, Op, Family, float);       \
  TF_GC_REGISTER_T(name, Op, Family, Eigen::half); \
  TF_GC_REGISTER_T(name, Op, Family, Eigen::bfloat16)

// Registers all ops of a family, whose names start with `name`.
#define TF_GC_REGISTER_FAMILY(name, Family)                      \
  TF_GC_REGISTER(name "Encode", EncodeOp, Family);               \
  TF_GC_REGISTER(name "Decode", DecodeOp, Family);               \
  TF_GC_REGISTER(name "Reencode", ReencodeOp, Family);           \
  TF_GC_REGISTER(name "DecodeShards", DecodeShardsOp, Family);   \
  REGISTER_KERNEL_BUILDER(                                       \
      Name("TfGc>" name "Count").Device(tensorflow::DEVICE_CPU), \
      CountOp<Family>)

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_KERNELS_SHARD_KERNELS_H_
