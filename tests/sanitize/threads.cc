// The work of the kernels' threads, for ThreadSanitizer: parts of a
// bucket are encoded, decoded, counted and encoded again side by side, from
// inputs that all threads share into neighbouring bytes of the same outputs.
// Messages are packed and unpacked by tasks side by side. Deadlines begin and
// end while others expire.
//
// The results must equal one thread's. TensorFlow is not part of this:
// ThreadSanitizer has to see every lock, and TensorFlow's are not compiled for
// it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "custom_ops/kernels/bucket.h"
#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/deadlines/deadlines.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {
namespace {

constexpr int kThreads = 16;
constexpr int64_t kReplicas = 4;
constexpr int64_t kShards = 3;
constexpr int64_t kSizes[] = {1, 0, 128, 129, 40000, 127, 5000};
constexpr float kThreshold = 0.25f;

using Bytes = std::vector<uint8_t>;
template <typename T>
using Tensors = std::vector<std::vector<T>>;

void SetValue(float value, float* result) { *result = value; }
void SetValue(float value, BFloat16* result) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  result->bits = static_cast<uint16_t>(bits >> 16);
}

template <typename T>
Tensors<T> TensorsOf(uint32_t seed) {
  Tensors<T> tensors;
  for (int64_t size : kSizes) {
    tensors.emplace_back(size);
    for (T& value : tensors.back()) {
      seed = seed * 1664525 + 1013904223;
      SetValue(static_cast<int32_t>(seed) * 0x1p-31f, &value);
    }
  }
  return tensors;
}

// Calls work(first, last) for parts of [0, blocks) in `threads` threads.
void ForBlocks(int threads, int64_t blocks,
               const std::function<void(int64_t, int64_t)>& work,
               int64_t part = 5) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) {
    pool.emplace_back([&] {
      for (;;) {
        const int64_t first = next.fetch_add(part);
        if (first >= blocks) return;
        work(first, std::min(blocks, first + part));
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
}

// All that the ops make of the replicas' gradients, in order.
template <typename T>
class Step {
 public:
  Step(Codec codec, int threads) : codec_(codec), threads_(threads) {
    for (int64_t size : kSizes) bucket_.Add(size);
    blocks_ = ShardBlocks(bucket_.blocks(), kShards);
    layout_ = LayoutOf(codec, blocks_);
  }

  std::vector<Bytes> Run() {
    for (int64_t r = 0; r < kReplicas; ++r) {
      gradients_.push_back(TensorsOf<T>(static_cast<uint32_t>(r)));
      residuals_.push_back(TensorsOf<float>(static_cast<uint32_t>(r) + 99));
      messages_.emplace_back(kShards * layout_.size);
    }
    // Replicas of one process encode at the same time.
    std::vector<std::thread> replicas;
    for (int64_t r = 0; r < kReplicas; ++r) {
      replicas.emplace_back([this, r] { EncodeReplica(r); });
    }
    for (std::thread& replica : replicas) replica.join();
    results_.insert(results_.end(), messages_.begin(), messages_.end());
    DecodeMessages();
    for (int64_t shard = 0; shard < kShards; ++shard) SumShard(shard);
    for (const Tensors<float>& tensors : residuals_) Keep(tensors);
    return results_;
  }

 private:
  void EncodeReplica(int64_t r) {
    ForBlocks(threads_, bucket_.blocks(), [&](int64_t first, int64_t last) {
      bucket_.ForEachShardRun(
          first, last, kShards,
          [&](const Bucket::Run& run, int64_t shard, int64_t block) {
            float* residual = Residual(r, run);
            uint8_t* row = messages_[r].data() + shard * layout_.size;
            Encode(codec_, Gradient(r, run), residual, residual, run.size,
                   kThreshold, layout_.Codes(row, block),
                   layout_.Scales(row, block));
          });
    });
  }

  void DecodeMessages() {
    Tensors<T> sums = TensorsOf<T>(0);
    ForBlocks(threads_, bucket_.blocks(), [&](int64_t first, int64_t last) {
      bucket_.ForEachShardRun(
          first, last, kShards,
          [&](const Bucket::Run& run, int64_t shard, int64_t block) {
            const Parts parts = PartsOf(shard, block);
            DecodeSum(codec_, parts.codes.data(), parts.scales.data(),
                      kReplicas, run.size, kThreshold,
                      sums[run.tensor].data() + run.first_element);
          });
    });
    Keep(sums);
  }

  // The second stage: counts and their values, or codes again.
  void SumShard(int64_t shard) {
    const Bucket::Shard own = bucket_.ShardOf(shard, kShards);
    const int bits = BitsOfCount(kReplicas);
    const MessageLayout layout =
        IsFixed(codec_) ? LayoutOf(CountsCodec(bits), blocks_) : layout_;
    Bytes row(layout.size);
    Tensors<T> sums = TensorsOf<T>(0);
    ForBlocks(threads_, own.blocks(), [&](int64_t first, int64_t last) {
      bucket_.ForEachRun(
          own.first + first, own.first + last, [&](const Bucket::Run& run) {
            const int64_t block = run.first_block - own.first;
            const Parts parts = PartsOf(shard, block);
            uint8_t* codes = layout.Codes(row.data(), block);
            if (IsFixed(codec_)) {
              Count(codec_, parts.codes.data(), parts.scales.data(), kReplicas,
                    NumBlocks(run.size), bits, codes);
              DecodeCounts(codes, bits, run.size, CountUnit(codec_, kThreshold),
                           sums[run.tensor].data() + run.first_element);
            } else {
              float* residual = Residual(0, run);
              uint16_t* scales = layout.Scales(row.data(), block);
              Reencode(codec_, codec_, parts.codes.data(), parts.scales.data(),
                       kReplicas, Gradient(0, run), residual, residual,
                       run.size, codes, scales);
            }
          });
    });
    results_.push_back(row);
    Keep(sums);
  }

  struct Parts {
    std::vector<const uint8_t*> codes;
    std::vector<const uint16_t*> scales;
  };

  Parts PartsOf(int64_t shard, int64_t block) const {
    Parts parts;
    for (const Bytes& message : messages_) {
      const uint8_t* row = message.data() + shard * layout_.size;
      parts.codes.push_back(layout_.Codes(row, block));
      parts.scales.push_back(layout_.Scales(row, block));
    }
    return parts;
  }

  const T* Gradient(int64_t r, const Bucket::Run& run) const {
    return gradients_[r][run.tensor].data() + run.first_element;
  }
  float* Residual(int64_t r, const Bucket::Run& run) {
    return residuals_[r][run.tensor].data() + run.first_element;
  }

  template <typename Value>
  void Keep(const Tensors<Value>& tensors) {
    for (const std::vector<Value>& tensor : tensors) {
      const uint8_t* first = reinterpret_cast<const uint8_t*>(tensor.data());
      results_.emplace_back(first, first + tensor.size() * sizeof(Value));
    }
  }

  const Codec codec_;
  const int threads_;
  Bucket bucket_;
  int64_t blocks_;
  MessageLayout layout_;
  std::vector<Tensors<T>> gradients_;
  std::vector<Tensors<float>> residuals_;
  std::vector<Bytes> messages_;
  std::vector<Bytes> results_;
};

template <typename T>
void CheckThreads(Codec codec) {
  // Before the one of a single thread: the first calls choose the target.
  const std::vector<Bytes> many = Step<T>(codec, kThreads).Run();
  if (many != Step<T>(codec, 1).Run()) {
    fprintf(stderr, "threads change the bits of codec %d\n",
            static_cast<int>(codec));
    exit(1);
  }
}

// Packs and unpacks a message of several segments, one of them not coded. Every
// fifth block is empty. The next segments have a period.
Bytes PackAndUnpack(Codec codec, int threads) {
  constexpr int64_t kBlocks = 4 * kSegmentBlocks + 3;
  const MessageLayout layout = LayoutOf(codec, kBlocks);
  Bytes message(layout.size);
  const MessageHeader header = HeaderOf(codec, kBlocks, 0);
  memcpy(message.data(), &header, sizeof(header));
  uint8_t* const codes = layout.Codes(message.data(), 0);
  for (int64_t i = 0; i < kBlocks; ++i) {
    if (i % 5 == 0) continue;
    codes[i * layout.code_bytes + i % kPlaneBytes] = 0xff;
    if (HasScales(codec)) *layout.Scales(message.data(), i) = 0x3c00;
  }
  for (int64_t i = 0; i < kSegmentBlocks * layout.code_bytes; ++i) {
    codes[i] = static_cast<uint8_t>(i * i >> 3);
  }
  const RunTasks run = [threads](int64_t tasks,
                                 const std::function<void(int64_t)>& task) {
    ForBlocks(threads, tasks, [&](int64_t first, int64_t) { task(first); }, 1);
  };
  Bytes compact(PackCapacity(codec, layout));
  constexpr Periods kPeriods = {2, {3, kPlaneBytes}};
  compact.resize(
      Pack(codec, layout, kPeriods, message.data(), compact.data(), run));
  SegmentHeader second;
  memcpy(&second, compact.data() + kSegmentsOffset + sizeof second,
         sizeof second);
  Bytes unpacked(layout.size);
  if (compact.size() >= message.size() || second.period != kPlaneBytes ||
      !Unpack(codec, layout, compact.data(), compact.size(), unpacked.data(),
              run) ||
      unpacked != message) {
    fprintf(stderr, "a message of codec %d was lost\n",
            static_cast<int>(codec));
    exit(1);
  }
  return compact;
}

void CheckCompact(Codec codec) {
  const Bytes many = PackAndUnpack(codec, kThreads);
  if (many != PackAndUnpack(codec, 1)) {
    fprintf(stderr, "threads change the packed bytes of codec %d\n",
            static_cast<int>(codec));
    exit(1);
  }
}

void CheckCodecs() {
  for (Codec codec :
       {Codec::kTwoBitFixed, Codec::kTwoBitAuto, Codec::kOneBitFixed,
        Codec::kOneBitAuto, Codec::kThreeBit, Codec::kFourBit}) {
    CheckThreads<float>(codec);
    CheckThreads<BFloat16>(codec);
    if (IsCompactible(codec)) CheckCompact(codec);
  }
}

// Each thread has a deadline that expires at once, one that it lets expire when
// others have ended, and many that it ends long before their time.
void CheckDeadlines() {
  std::atomic<int> expired{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      Deadlines& deadlines = Deadlines::Get();
      deadlines.Begin(1e-9, [&] { ++expired; });
      for (int j = 0; j < 100; ++j) {
        deadlines.End(deadlines.Begin(3600, [&] { ++wrong; }));
      }
      deadlines.Begin(1e-3, [&] {
        deadlines.End(deadlines.Begin(3600, [&] { ++wrong; }));
        ++expired;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (expired < 2 * kThreads) std::this_thread::yield();
  if (wrong != 0) {
    fprintf(stderr, "%d deadlines expired that had ended\n", wrong.load());
    exit(1);
  }
}

}  // namespace
}  // namespace tf_gc

int main() {
  tf_gc::CheckDeadlines();
  tf_gc::CheckCodecs();
  for (int target = 0; target < 3; ++target) {
    if (!tf_gc::ForceTarget(static_cast<tf_gc::Target>(target))) continue;
    tf_gc::CheckCodecs();
    printf("target %d: the bits of one thread, no race\n", target);
  }
}
