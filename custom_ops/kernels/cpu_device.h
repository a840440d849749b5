// The work of the ops on the CPU: shard over TensorFlow's threads, call the
// library.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "custom_ops/kernels/bucket.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/cpu/codec.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

class CpuDevice {
 public:
  static constexpr bool kMessagesOnHost = true;

  template <typename T>
  static absl::Status Encode(OpKernelContext* context,
                             const MessageFormat& format, const Bucket& bucket,
                             int64_t shards, int64_t skip,
                             const OpInputList& gradients,
                             const ResidualLock& residuals, uint8_t* messages) {
    const MessageLayout layout =
        format.Layout(ShardBlocks(bucket.blocks(), shards));
    for (int64_t i = 0; i < shards; ++i) {
      const int64_t used = i == skip ? 0 : bucket.ShardOf(i, shards).blocks();
      format.WriteFrame(layout, used, messages + i * layout.size);
    }
    Bucket::Shard skipped = {bucket.blocks(), bucket.blocks()};
    if (skip != -1) skipped = bucket.ShardOf(skip, shards);
    Keep(bucket, skipped.first, skipped.last, residuals);

    const auto encode_run = [&](const Bucket::Run& run, int64_t shard,
                                int64_t block) {
      const ResidualLock::Buffers residual =
          residuals.buffers(run.tensor).From(run.first_element);
      const LibType<T>* gradient =
          Data<T>(gradients[run.tensor]) + run.first_element;
      uint8_t* message = messages + shard * layout.size;
      tf_gc::Encode(format.codec, gradient, residual.before, residual.after,
                    run.size, format.threshold, layout.Codes(message, block),
                    layout.Scales(message, block), residual.dtype);
    };
    // The blocks that are not skipped are numbered from 0 on.
    InThreads(context, bucket.blocks() - skipped.blocks(), kEncodeBlockCost,
              [&](int64_t first, int64_t last) {
                bucket.ForEachShardRun(first, std::min(last, skipped.first),
                                       shards, encode_run);
                bucket.ForEachShardRun(
                    std::max(first, skipped.first) + skipped.blocks(),
                    last + skipped.blocks(), shards, encode_run);
              });
    return absl::OkStatus();
  }

  template <typename T>
  static absl::Status Decode(OpKernelContext* context,
                             const MessageFormat& format, const Bucket& bucket,
                             const std::vector<const uint8_t*>& rows,
                             const std::vector<LibType<T>*>& sums) {
    const MessageLayout layout = format.Layout(bucket.blocks());
    TF_RETURN_IF_ERROR(format.CheckHeaders(rows, layout));
    const int64_t replicas = static_cast<int64_t>(rows.size());
    InThreads(context, layout.blocks, kDecodeBlockCost * replicas,
              [&](int64_t first, int64_t last) {
                Blocks of_run(replicas);
                bucket.ForEachRun(first, last, [&](const Bucket::Run& run) {
                  of_run.Point(layout, rows.data(), run.first_block);
                  DecodeSum(format.codec, of_run.codes.data(),
                            of_run.scales.data(), replicas, run.size,
                            format.threshold,
                            sums[run.tensor] + run.first_element);
                });
              });
    return absl::OkStatus();
  }

  template <typename T>
  static absl::Status Reencode(
      OpKernelContext* context, const MessageFormat& format,
      const MessageFormat& of_sum, const Bucket& bucket, int64_t shards,
      int64_t shard, const std::vector<const uint8_t*>& others,
      const OpInputList& gradients, const ResidualLock& residuals,
      uint8_t* message) {
    const Bucket::Shard own = bucket.ShardOf(shard, shards);
    const int64_t shard_blocks = ShardBlocks(bucket.blocks(), shards);
    const MessageLayout from = format.Layout(shard_blocks);
    const MessageLayout to = of_sum.Layout(shard_blocks);
    TF_RETURN_IF_ERROR(format.CheckHeaders(others, from));
    of_sum.WriteFrame(to, own.blocks(), message);
    Keep(bucket, 0, own.first, residuals);
    Keep(bucket, own.last, bucket.blocks(), residuals);

    const int64_t replicas = static_cast<int64_t>(others.size());
    const int64_t cost = kEncodeBlockCost + kAddBlockCost * replicas;
    InThreads(context, own.blocks(), cost, [&](int64_t first, int64_t last) {
      Blocks of_run(replicas);
      bucket.ForEachRun(
          own.first + first, own.first + last, [&](const Bucket::Run& run) {
            const int64_t block = run.first_block - own.first;
            of_run.Point(from, others.data(), block);
            const ResidualLock::Buffers residual =
                residuals.buffers(run.tensor).From(run.first_element);
            tf_gc::Reencode(format.codec, of_sum.codec, of_run.codes.data(),
                            of_run.scales.data(), replicas,
                            Data<T>(gradients[run.tensor]) + run.first_element,
                            residual.before, residual.after, run.size,
                            to.Codes(message, block), to.Scales(message, block),
                            residual.dtype);
          });
    });
    return absl::OkStatus();
  }

  static absl::Status Count(OpKernelContext* context,
                            const MessageFormat& fixed,
                            const MessageFormat& counts, int64_t blocks,
                            const std::vector<const uint8_t*>& rows,
                            uint8_t* message) {
    const MessageLayout from = fixed.Layout(blocks);
    const MessageLayout to = counts.Layout(blocks);
    TF_RETURN_IF_ERROR(fixed.CheckHeaders(rows, from));
    counts.WriteFrame(to, blocks, message);
    const int64_t replicas = static_cast<int64_t>(rows.size());
    InThreads(context, blocks, kStoreCountsCost + kCountBlockCost * replicas,
              [&](int64_t first, int64_t last) {
                Blocks of_range(replicas);
                of_range.Point(from, rows.data(), first);
                tf_gc::Count(fixed.codec, of_range.codes.data(),
                             of_range.scales.data(), replicas, last - first,
                             CodeBits(counts.codec), to.Codes(message, first));
              });
    return absl::OkStatus();
  }

  // `format` is automatic, or the format of counts.
  template <typename T>
  static absl::Status DecodeShards(OpKernelContext* context,
                                   const MessageFormat& format,
                                   const Bucket& bucket,
                                   const std::vector<const uint8_t*>& rows,
                                   const std::vector<LibType<T>*>& sums) {
    const int64_t shards = static_cast<int64_t>(rows.size());
    const MessageLayout layout =
        format.Layout(ShardBlocks(bucket.blocks(), shards));
    TF_RETURN_IF_ERROR(format.CheckHeaders(rows, layout));
    const auto decode_run = [&](const Bucket::Run& run, int64_t shard,
                                int64_t block) {
      const uint8_t* codes = layout.Codes(rows[shard], block);
      const uint16_t* scales = layout.Scales(rows[shard], block);
      LibType<T>* sum = sums[run.tensor] + run.first_element;
      if (IsAuto(format.codec)) {
        DecodeSum(format.codec, &codes, &scales, 1, run.size, 0.0f, sum);
      } else {
        DecodeCounts(codes, CodeBits(format.codec), run.size, format.threshold,
                     sum);
      }
    };
    InThreads(context, bucket.blocks(), kDecodeBlockCost,
              [&](int64_t first, int64_t last) {
                bucket.ForEachShardRun(first, last, shards, decode_run);
              });
    return absl::OkStatus();
  }

 private:
  // Nanoseconds for a block on one core. Shard() starts no thread for less than
  // about 10 microseconds of work, so a small tensor stays on the caller's.
  static constexpr int64_t kEncodeBlockCost = 100;
  static constexpr int64_t kDecodeBlockCost = 40;  // for each message
  static constexpr int64_t kAddBlockCost = 10;     // for each message
  static constexpr int64_t kCountBlockCost = 5;    // for each message
  static constexpr int64_t kStoreCountsCost = 20;

  // Where a block is in each message.
  struct Blocks {
    explicit Blocks(int64_t messages) : codes(messages), scales(messages) {}

    void Point(const MessageLayout& layout, const uint8_t* const* rows,
               int64_t block) {
      for (size_t i = 0; i < codes.size(); ++i) {
        codes[i] = layout.Codes(rows[i], block);
        scales[i] = layout.Scales(rows[i], block);
      }
    }

    std::vector<const uint8_t*> codes;
    std::vector<const uint16_t*> scales;
  };

  // Takes over the residuals of the blocks [first, last), which are not
  // encoded.
  static void Keep(const Bucket& bucket, int64_t first, int64_t last,
                   const ResidualLock& residuals) {
    bucket.ForEachRun(first, last, [&](const Bucket::Run& run) {
      const ResidualLock::Buffers residual =
          residuals.buffers(run.tensor).From(run.first_element);
      if (residual.after == residual.before) return;
      std::memcpy(residual.after, residual.before,
                  ResidualBytes(residual.dtype, run.size));
    });
  }
};

}  // namespace tf_gc
