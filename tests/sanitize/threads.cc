// The work of the kernels' threads, for ThreadSanitizer: side by side, parts of
// a bucket are encoded, decoded, counted and encoded again, from inputs that
// all threads share into neighbouring bytes, and messages are packed and
// unpacked. Deadlines begin and end while others expire.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/deadlines/deadlines.h"
#include "custom_ops/lib/wire/compact_wire.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {
namespace {

constexpr int kThreads = 16;
constexpr int kReplicas = 4;
constexpr int64_t kSize = 45000;  // the last block is partial
constexpr float kThreshold = 0.25f;

using Bytes = std::vector<uint8_t>;

template <typename T>
std::vector<T> Values(uint32_t seed) {
  std::vector<T> values(kSize);
  for (T& value : values) {
    seed = seed * 1664525 + 1013904223;
    RoundTo(static_cast<int32_t>(seed) * 0x1p-31f, &value);
  }
  return values;
}

void Expect(bool condition, Codec codec, const char* what) {
  if (condition) return;
  fprintf(stderr, "codec %d: %s\n", static_cast<int>(codec), what);
  exit(1);
}

// Calls work(first, last) for parts of [0, blocks) in all threads.
void ForBlocks(int64_t blocks,
               const std::function<void(int64_t, int64_t)>& work,
               int64_t part = 5) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> pool;
  for (int i = 0; i < kThreads; ++i) {
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

// Makes of the replicas' gradients all that the ops make.
template <typename T>
void Step(Codec codec) {
  const int64_t blocks = NumBlocks(kSize);
  const MessageLayout layout = LayoutOf(codec, blocks);
  std::vector<std::vector<T>> gradients;
  std::vector<std::vector<float>> residuals;
  for (uint32_t r = 0; r < kReplicas; ++r) {
    gradients.push_back(Values<T>(r));
    residuals.push_back(Values<float>(r + 99));
  }
  std::vector<Bytes> messages(kReplicas, Bytes(layout.size));
  // Calls work(first element, size, block) for parts of the bucket.
  const auto for_parts = [&](const auto& work) {
    ForBlocks(blocks, [&](int64_t first, int64_t last) {
      const int64_t start = first * kBlockSize;
      work(start, std::min(kSize, last * kBlockSize) - start, first);
    });
  };
  // Replicas of one process encode at the same time.
  std::vector<std::thread> replicas;
  for (int r = 0; r < kReplicas; ++r) {
    replicas.emplace_back([&, r] {
      for_parts([&](int64_t start, int64_t size, int64_t block) {
        float* residual = residuals[r].data() + start;
        uint8_t* message = messages[r].data();
        Encode(codec, gradients[r].data() + start, residual, residual, size,
               kThreshold, layout.Codes(message, block),
               layout.Scales(message, block));
      });
    });
  }
  for (std::thread& replica : replicas) replica.join();

  const int bits = BitsOfCount(kReplicas);
  const MessageLayout of_sum =
      IsFixed(codec) ? LayoutOf(CountsCodec(bits), blocks) : layout;
  Bytes sum_message(of_sum.size);
  std::vector<T> sums(kSize);
  std::vector<T> counted(kSize);
  for_parts([&](int64_t start, int64_t size, int64_t block) {
    const uint8_t* codes[kReplicas];
    const uint16_t* scales[kReplicas];
    for (int r = 0; r < kReplicas; ++r) {
      codes[r] = layout.Codes(messages[r].data(), block);
      scales[r] = layout.Scales(messages[r].data(), block);
    }
    DecodeSum(codec, codes, scales, kReplicas, size, kThreshold,
              sums.data() + start);
    // The second stage: counts and their values, or codes again.
    uint8_t* sum_codes = of_sum.Codes(sum_message.data(), block);
    if (IsFixed(codec)) {
      Count(codec, codes, scales, kReplicas, NumBlocks(size), bits, sum_codes);
      DecodeCounts(sum_codes, bits, size, CountUnit(codec, kThreshold),
                   counted.data() + start);
    } else {
      float* residual = residuals[0].data() + start;
      Reencode(codec, codec, codes, scales, kReplicas,
               gradients[0].data() + start, residual, residual, size, sum_codes,
               of_sum.Scales(sum_message.data(), block));
    }
  });
}

// Packs and unpacks a message of several segments, one of them not coded. Every
// fifth block is empty. The next segments have a period.
void PackAndUnpack(Codec codec) {
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
  const RunTasks run = [](int64_t tasks,
                          const std::function<void(int64_t)>& task) {
    ForBlocks(tasks, [&](int64_t first, int64_t) { task(first); }, 1);
  };
  Bytes compact(PackCapacity(codec, layout));
  constexpr Periods kPeriods = {2, {3, kPlaneBytes}};
  compact.resize(
      Pack(codec, layout, kPeriods, message.data(), compact.data(), run));
  SegmentHeader second;
  memcpy(&second, compact.data() + kSegmentsOffset + sizeof second,
         sizeof second);
  Expect(compact.size() < message.size() && second.period == kPlaneBytes, codec,
         "packing does not make a message smaller by its period");
  Bytes unpacked(layout.size);
  Expect(Unpack(codec, layout, compact.data(), compact.size(), unpacked.data(),
                run) &&
             unpacked == message,
         codec, "a message was lost");
}

void CheckCodecs() {
  for (Codec codec : {Codec::kTwoBitFixed, Codec::kTwoBitAuto,
                      Codec::kOneBitFixed, Codec::kOneBitAuto, Codec::kThreeBit,
                      Codec::kFourBit, Codec::kEightBit}) {
    Step<float>(codec);
    Step<BFloat16>(codec);
    if (IsCompactible(codec)) PackAndUnpack(codec);
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
  for (int target = 0; target < 4; ++target) {
    if (!tf_gc::ForceTarget(static_cast<tf_gc::Target>(target))) continue;
    tf_gc::CheckCodecs();
    printf("target %d: no race\n", target);
  }
}
