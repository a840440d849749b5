// Buckets with the values of tests/custom_ops/cases.py, and what the CPU's
// library makes of them.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "custom_ops/kernels/bucket.h"
#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/eight_bit_block.h"
#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc::gpu {

using Random = std::mt19937;
using Bytes = std::vector<uint8_t>;
template <typename T>
using Tensors = std::vector<std::vector<T>>;

constexpr float kThreshold = 0.5f;

inline int64_t Below(Random& random, int64_t end) {
  return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
}

// ---- Values -----------------------------------------------------------------

// Values that codecs and float types treat in their own ways, and neighbours.
inline std::vector<float> SpecialValues(float threshold) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,   kInfinity, std::nanf(""), 1.0f,
                               1e-45f, 1e-40f,    1e38f,         3.4e38f};
  for (float middle : {threshold, 0x1p120f, 0x1p119f, 0x1p-126f, 65504.0f,
                       0x1p-14f, 0x1p-24f}) {
    values.insert(values.end(), {middle, std::nextafter(middle, 0.0f),
                                 std::nextafter(middle, kInfinity)});
  }
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  return values;
}

// Normal values whose size differs from block to block, some of them special.
// Two thirds of the blocks are left without special values.
template <typename T>
std::vector<T> RandomGradient(Random& random, int64_t size,
                              float threshold = kThreshold) {
  const std::vector<float> special = SpecialValues(threshold);
  std::normal_distribution<float> normal;
  std::vector<T> values(size);
  float scale = 1;
  for (int64_t i = 0; i < size; ++i) {
    if (i % kBlockSize == 0) {
      scale = std::ldexp(1.0f, static_cast<int>(Below(random, 16)) - 12);
    }
    const bool chosen = i / kBlockSize % 3 == 0 && Below(random, 20) == 0;
    RoundTo(chosen ? special[Below(random, special.size())]
                   : scale * normal(random),
            &values[i]);
  }
  return values;
}

template <typename R>
constexpr bool kInBlocks = std::is_same_v<R, EightBitResiduals>;

template <typename R = float>
std::vector<R> RandomResidual(Random& random, int64_t size) {
  std::normal_distribution<float> normal(0.0f, 0.1f);
  std::vector<R> values(kInBlocks<R> ? NumBlocks(size) : size);
  if constexpr (kInBlocks<R>) {
    for (int64_t i = 0; i < size; ++i) {
      R& block = values[i / kBlockSize];
      block.scale = (1 + i / kBlockSize) * 0.001f;
      block.whole[i % kBlockSize] = Below(random, 255) - 127;
    }
  } else {
    for (R& value : values) RoundTo(normal(random), &value);
  }
  return values;
}

// The residuals of an element, the first one of a block, and all after it.
template <typename R>
R* From(std::vector<R>& residuals, int64_t element) {
  return residuals.data() + element / (kInBlocks<R> ? kBlockSize : 1);
}

template <typename T>
Bucket BucketOf(const Tensors<T>& tensors) {
  Bucket bucket;
  for (const std::vector<T>& tensor : tensors) bucket.Add(tensor.size());
  return bucket;
}

// ---- Messages on the CPU ----------------------------------------------------

struct Format {
  Codec codec;
  float threshold;  // 0 for automatic codecs

  MessageLayout Layout(int64_t blocks) const { return LayoutOf(codec, blocks); }
};

inline Format FormatOf(Codec codec, float threshold = kThreshold) {
  return {codec, IsAuto(codec) ? 0.0f : threshold};
}

// `count` messages of which only the frames are written.
inline Bytes Frames(const Format& format, int64_t blocks, int64_t count) {
  const MessageLayout layout = format.Layout(blocks);
  Bytes messages(layout.size * count);
  for (int64_t i = 0; i < count; ++i) {
    const MessageHeader header =
        HeaderOf(format.codec, blocks, format.threshold);
    std::memcpy(messages.data() + i * layout.size, &header, sizeof(header));
  }
  return messages;
}

// A message whose codes and scales are random bytes.
inline Bytes HostileMessage(Random& random, const Format& format,
                            int64_t blocks) {
  Bytes message = Frames(format, blocks, 1);
  const MessageLayout layout = format.Layout(blocks);
  for (int64_t i = layout.codes_offset; i < layout.padding_offset; ++i) {
    message[i] = static_cast<uint8_t>(random());
  }
  return message;
}

// The messages of a bucket. Replaces the residuals.
template <typename T, typename R>
Bytes EncodeOnCpu(const Format& format, const Tensors<T>& gradients,
                  int64_t shards, int64_t skip, Tensors<R>* residuals) {
  const Bucket bucket = BucketOf(gradients);
  const MessageLayout layout =
      format.Layout(ShardBlocks(bucket.blocks(), shards));
  Bytes messages = Frames(format, layout.blocks, shards);
  bucket.ForEachShardRun(
      0, bucket.blocks(), shards,
      [&](const Bucket::Run& run, int64_t shard, int64_t block) {
        if (shard == skip) return;
        uint8_t* message = messages.data() + shard * layout.size;
        R* residual = From((*residuals)[run.tensor], run.first_element);
        Encode(format.codec, gradients[run.tensor].data() + run.first_element,
               residual, residual, run.size, format.threshold,
               layout.Codes(message, block), layout.Scales(message, block),
               DTypeOf<R>());
      });
  return messages;
}

// Where the blocks from `block` on are in each message.
struct BlockPointers {
  BlockPointers(const MessageLayout& layout, const std::vector<Bytes>& rows,
                int64_t block) {
    for (const Bytes& row : rows) {
      codes.push_back(layout.Codes(row.data(), block));
      scales.push_back(layout.Scales(row.data(), block));
    }
  }
  // The rows are only pointed to.
  BlockPointers(const MessageLayout&, std::vector<Bytes>&&, int64_t) = delete;
  std::vector<const uint8_t*> codes;
  std::vector<const uint16_t*> scales;
};

// The sums of messages of the bucket of `sums`.
template <typename T>
void DecodeOnCpu(const Format& format, const std::vector<Bytes>& rows,
                 Tensors<T>* sums) {
  const Bucket bucket = BucketOf(*sums);
  const MessageLayout layout = format.Layout(bucket.blocks());
  bucket.ForEachRun(0, bucket.blocks(), [&](const Bucket::Run& run) {
    const BlockPointers at(layout, rows, run.first_block);
    DecodeSum(format.codec, at.codes.data(), at.scales.data(), rows.size(),
              run.size, format.threshold,
              (*sums)[run.tensor].data() + run.first_element);
  });
}

// The message with the sum of the shard, given the others'. Replaces the
// residuals.
template <typename T, typename R>
Bytes ReencodeOnCpu(const Format& format, const Format& of_sum,
                    const std::vector<Bytes>& others,
                    const Tensors<T>& gradients, int64_t shard, int64_t shards,
                    Tensors<R>* residuals) {
  const Bucket bucket = BucketOf(gradients);
  const Bucket::Shard own = bucket.ShardOf(shard, shards);
  const int64_t shard_blocks = ShardBlocks(bucket.blocks(), shards);
  const MessageLayout from = format.Layout(shard_blocks);
  const MessageLayout to = of_sum.Layout(shard_blocks);
  Bytes message = Frames(of_sum, shard_blocks, 1);
  bucket.ForEachRun(own.first, own.last, [&](const Bucket::Run& run) {
    const int64_t block = run.first_block - own.first;
    const BlockPointers at(from, others, block);
    R* residual = From((*residuals)[run.tensor], run.first_element);
    Reencode(format.codec, of_sum.codec, at.codes.data(), at.scales.data(),
             others.size(), gradients[run.tensor].data() + run.first_element,
             residual, residual, run.size, to.Codes(message.data(), block),
             to.Scales(message.data(), block), DTypeOf<R>());
  });
  return message;
}

inline Format CountsFormat(const Format& fixed, int64_t replicas) {
  return {CountsCodec(BitsOfCount(replicas)),
          CountUnit(fixed.codec, fixed.threshold)};
}

inline Bytes CountOnCpu(const Format& format, const std::vector<Bytes>& rows,
                        int64_t blocks) {
  const int64_t replicas = static_cast<int64_t>(rows.size());
  const Format counts = CountsFormat(format, replicas);
  Bytes message = Frames(counts, blocks, 1);
  const BlockPointers at(format.Layout(blocks), rows, 0);
  Count(format.codec, at.codes.data(), at.scales.data(), replicas, blocks,
        BitsOfCount(replicas), counts.Layout(blocks).Codes(message.data(), 0));
  return message;
}

// `rows` are the messages of the shards of the bucket of `sums`.
template <typename T>
void DecodeShardsOnCpu(const Format& format, const std::vector<Bytes>& rows,
                       Tensors<T>* sums) {
  const Bucket bucket = BucketOf(*sums);
  const int64_t shards = static_cast<int64_t>(rows.size());
  const MessageLayout layout =
      format.Layout(ShardBlocks(bucket.blocks(), shards));
  bucket.ForEachShardRun(
      0, bucket.blocks(), shards,
      [&](const Bucket::Run& run, int64_t shard, int64_t block) {
        const uint8_t* codes = layout.Codes(rows[shard].data(), block);
        const uint16_t* scales = layout.Scales(rows[shard].data(), block);
        T* sum = (*sums)[run.tensor].data() + run.first_element;
        if (IsAuto(format.codec)) {
          DecodeSum(format.codec, &codes, &scales, 1, run.size, 0.0f, sum);
        } else {
          DecodeCounts(codes, CodeBits(format.codec), run.size,
                       format.threshold, sum);
        }
      });
}

}  // namespace tf_gc::gpu
