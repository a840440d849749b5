// Bytes per second of the kernels and of a copy on the device, as JSON.
//
// The bytes of a call are those that it has to read and to write once. Times
// are medians over calls that follow each other in a stream, with inputs much
// larger than the caches.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "custom_ops/lib/cuda/codec.h"
#include "custom_ops/lib/wire/wire.h"
#include "tests/gpu/buckets.h"
#include "tests/gpu/memory.h"
#include "tests/gpu/tests.h"

namespace tf_gc::gpu {
namespace {

constexpr int64_t kElements = 100'000'000;
constexpr int64_t kMostReplicas = 8;
constexpr int kRounds = 21;
constexpr int kCalls = 5;  // in a round

// The median of seconds per call.
double Time(const std::function<void()>& call) {
  cudaEvent_t begin;
  cudaEvent_t end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < kCalls; ++i) call();
  std::vector<float> times;
  for (int round = 0; round < kRounds; ++round) {
    Check(cudaEventRecord(begin), "cudaEventRecord");
    for (int i = 0; i < kCalls; ++i) call();
    Check(cudaEventRecord(end), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds;
    Check(cudaEventElapsedTime(&milliseconds, begin, end),
          "cudaEventElapsedTime");
    times.push_back(milliseconds / kCalls / 1000);
  }
  Check(cudaEventDestroy(begin), "cudaEventDestroy");
  Check(cudaEventDestroy(end), "cudaEventDestroy");
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

// Random numbers, the same in each megabyte.
std::vector<float> Numbers() {
  Random random(10);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    numbers[i] = i < 1 << 20 ? normal(random) : numbers[i - (1 << 20)];
  }
  return numbers;
}

}  // namespace

void MeasureThroughput(std::FILE* file) {
  const Array<float> gradient(Numbers());
  const Array<float> residual(Numbers());
  const Array<float> sum(kElements);
  const Gradient input = {gradient.data(), residual.data(), residual.data(),
                          kElements};
  const Sum output = {sum.data(), kElements};
  const double elements = static_cast<double>(kElements);
  const double copied =
      8 * elements / Time([&] {
        Check(cudaMemcpyAsync(sum.data(), gradient.data(), 4 * kElements,
                              cudaMemcpyDeviceToDevice),
              "cudaMemcpyAsync");
      });
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::fprintf(file,
               "{\n  \"device\": \"%s\",\n  \"elements\": %lld,\n"
               "  \"copy_gb_per_s\": %.1f,\n  \"calls\": [",
               properties.name, static_cast<long long>(kElements),
               copied / 1e9);
  const char* separator = "";
  const auto report = [&](const char* op, const char* codec, int64_t replicas,
                          double bytes, const std::function<void()>& call) {
    const double rate = bytes / Time(call);
    std::fprintf(file,
                 "%s\n    {\"op\": \"%s\", \"codec\": \"%s\", \"replicas\": "
                 "%lld, \"gb_per_s\": %.1f, \"of_copy\": %.3f}",
                 separator, op, codec, static_cast<long long>(replicas),
                 rate / 1e9, rate / copied);
    separator = ",";
    std::fflush(file);
  };
  for (const auto& [codec, name] :
       {std::pair{Codec::kTwoBitFixed, "two_bit_fixed"},
        {Codec::kTwoBitAuto, "two_bit_auto"},
        {Codec::kOneBitFixed, "one_bit_fixed"},
        {Codec::kOneBitAuto, "one_bit_auto"},
        {Codec::kThreeBit, "three_bit"},
        {Codec::kFourBit, "four_bit"},
        {Codec::kEightBit, "eight_bit"}}) {
    const Format format = FormatOf(codec);
    const MessageLayout layout = format.Layout(NumBlocks(kElements));
    const double message = static_cast<double>(layout.size);
    const Array<uint8_t> messages(layout.size * kMostReplicas);
    std::vector<const uint8_t*> rows;
    for (int64_t i = 0; i < kMostReplicas; ++i) {
      uint8_t* const row = messages.data() + i * layout.size;
      rows.push_back(row);
      const auto encode = [&, kind = codec] {
        Check(Encode(kind, DType::kFloat, &input, 1, 1, -1, format.threshold,
                     row, nullptr),
              "Encode");
      };
      if (i == 0) report("encode", name, 1, 12 * elements + message, encode);
      encode();
    }
    for (int64_t replicas : {int64_t{1}, int64_t{2}, kMostReplicas}) {
      report("decode", name, replicas, 4 * elements + message * replicas,
             [&, kind = codec] {
               Check(DecodeSum(kind, DType::kFloat, rows.data(), replicas,
                               &output, 1, format.threshold, nullptr),
                     "DecodeSum");
             });
    }
  }
  std::fprintf(file, "\n  ]\n}\n");
}

}  // namespace tf_gc::gpu
