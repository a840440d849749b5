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

namespace tf_gc {
namespace gpu {
namespace {

constexpr int64_t kElements = 100'000'000;
constexpr int kRounds = 21;
constexpr int kCalls = 5;  // in a round

// Memory that is neither read nor compared by the CPU.
class Memory {
 public:
  explicit Memory(int64_t size) {
    Check(cudaMalloc(&data_, static_cast<size_t>(size)), "cudaMalloc");
    Check(cudaMemset(data_, 0, static_cast<size_t>(size)), "cudaMemset");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  void* data_ = nullptr;
};

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

// With "fixed" or "auto", unlike NameOf().
const char* LabelOf(Codec codec) {
  switch (codec) {
    case Codec::kTwoBitFixed:
      return "two_bit_fixed";
    case Codec::kTwoBitAuto:
      return "two_bit_auto";
    case Codec::kOneBitFixed:
      return "one_bit_fixed";
    case Codec::kThreeBit:
      return "three_bit";
    case Codec::kFourBit:
      return "four_bit";
    default:
      return "one_bit_auto";
  }
}

// Random numbers, the same in each megabyte.
template <typename T>
void Fill(const Memory& memory, int64_t count) {
  Random random(10);
  std::vector<T> part(std::min<int64_t>(count, 1 << 20));
  std::normal_distribution<float> normal;
  for (T& value : part) RoundTo(normal(random), &value);
  const int64_t part_size = static_cast<int64_t>(part.size());
  for (int64_t i = 0; i < count; i += part_size) {
    Check(cudaMemcpy(memory.data() + i * sizeof(T), part.data(),
                     std::min(part_size, count - i) * sizeof(T),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
}

class Report {
 public:
  explicit Report(std::FILE* file) : file_(file) {}

  // Measures the copy that all others are compared with.
  void Copy() {
    const int64_t size = 4 * kElements;
    const Memory from(size);
    const Memory to(size);
    copied_ = 2.0 * static_cast<double>(size) / Time([&] {
                Check(cudaMemcpyAsync(to.data(), from.data(),
                                      static_cast<size_t>(size),
                                      cudaMemcpyDeviceToDevice),
                      "cudaMemcpyAsync");
              });
    cudaDeviceProp properties;
    Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    std::fprintf(file_,
                 "{\n  \"device\": \"%s\",\n  \"elements\": %lld,\n"
                 "  \"copy_gb_per_s\": %.1f,\n  \"calls\": [",
                 properties.name, static_cast<long long>(kElements),
                 copied_ / 1e9);
  }

  void Call(const char* op, Codec codec, const char* dtype, int64_t replicas,
            double bytes, const std::function<void()>& call) {
    const double rate = bytes / Time(call);
    std::fprintf(file_,
                 "%s\n    {\"op\": \"%s\", \"codec\": \"%s\", \"dtype\": "
                 "\"%s\", \"replicas\": %lld, \"gb_per_s\": %.1f, "
                 "\"of_copy\": %.3f}",
                 calls_++ == 0 ? "" : ",", op, LabelOf(codec), dtype,
                 static_cast<long long>(replicas), rate / 1e9, rate / copied_);
    std::fflush(file_);
  }

  void Finish(double small_encode, double small_decode) {
    std::fprintf(file_,
                 "\n  ],\n  \"200_small_tensors\": {\"encode_us\": %.2f, "
                 "\"decode_us\": %.2f}\n}\n",
                 small_encode * 1e6, small_decode * 1e6);
  }

 private:
  std::FILE* file_;
  double copied_ = 0;
  int calls_ = 0;
};

template <typename T>
void MeasureType(DType dtype, const char* name, Report* report) {
  constexpr int64_t kMostReplicas = 8;
  const Memory gradient(kElements * static_cast<int64_t>(sizeof(T)));
  const Memory residual(kElements * 4);
  const Gradient input = {gradient.data(),
                          reinterpret_cast<float*>(residual.data()),
                          reinterpret_cast<float*>(residual.data()), kElements};
  const Sum output = {gradient.data(), kElements};
  for (Codec codec :
       {Codec::kTwoBitFixed, Codec::kTwoBitAuto, Codec::kOneBitFixed,
        Codec::kOneBitAuto, Codec::kThreeBit, Codec::kFourBit}) {
    const Format format = FormatOf(codec);
    const MessageLayout layout = format.Layout(NumBlocks(kElements));
    const Memory messages(layout.size * kMostReplicas);
    Fill<T>(gradient, kElements);
    Fill<float>(residual, kElements);
    const double message = static_cast<double>(layout.size);
    const double elements = static_cast<double>(kElements);
    report->Call("encode", codec, name, 1, elements * (sizeof(T) + 8) + message,
                 [&] {
                   Check(Encode(codec, dtype, &input, 1, 1, -1,
                                format.threshold, messages.data(), nullptr),
                         "Encode");
                 });
    std::vector<const uint8_t*> rows;
    for (int64_t i = 0; i < kMostReplicas; ++i) {
      rows.push_back(messages.data() + i * layout.size);
      Check(Encode(codec, dtype, &input, 1, 1, -1, format.threshold,
                   messages.data() + i * layout.size, nullptr),
            "Encode");
    }
    for (int64_t replicas : {int64_t{1}, int64_t{2}, kMostReplicas}) {
      report->Call("decode", codec, name, replicas,
                   elements * sizeof(T) + message * replicas, [&] {
                     Check(DecodeSum(codec, dtype, rows.data(), replicas,
                                     &output, 1, format.threshold, nullptr),
                           "DecodeSum");
                   });
    }
    if (!IsFixed(codec)) continue;
    const Format counts = CountsFormat(format, kMostReplicas);
    const MessageLayout counted = counts.Layout(layout.blocks);
    const Memory sums(counted.size);
    report->Call(
        "count", codec, name, kMostReplicas,
        message * kMostReplicas + static_cast<double>(counted.size), [&] {
          Check(Count(codec, format.threshold, rows.data(), kMostReplicas,
                      layout.blocks, sums.data(), nullptr),
                "Count");
        });
  }
}

}  // namespace

void MeasureThroughput(std::FILE* file) {
  Report report(file);
  report.Copy();
  MeasureType<float>(DType::kFloat, "float32", &report);
  MeasureType<Half>(DType::kHalf, "float16", &report);
  MeasureType<BFloat16>(DType::kBFloat16, "bfloat16", &report);

  constexpr int64_t kTensors = 200;
  constexpr int64_t kSize = 2048;
  const Memory gradients(kTensors * kSize * 4);
  const Memory residuals(kTensors * kSize * 4);
  std::vector<Gradient> inputs;
  std::vector<Sum> outputs;
  for (int64_t i = 0; i < kTensors; ++i) {
    float* gradient = reinterpret_cast<float*>(gradients.data()) + i * kSize;
    float* residual = reinterpret_cast<float*>(residuals.data()) + i * kSize;
    inputs.push_back({gradient, residual, residual, kSize});
    outputs.push_back({gradient, kSize});
  }
  const Codec codec = Codec::kTwoBitAuto;
  const Memory message(LayoutOf(codec, kTensors * NumBlocks(kSize)).size);
  const uint8_t* const row = message.data();
  const double encode = Time([&] {
    Check(Encode(codec, DType::kFloat, inputs.data(), kTensors, 1, -1, 0.0f,
                 message.data(), nullptr),
          "Encode");
  });
  const double decode = Time([&] {
    Check(DecodeSum(codec, DType::kFloat, &row, 1, outputs.data(), kTensors,
                    0.0f, nullptr),
          "DecodeSum");
  });
  report.Finish(encode, decode);
}

}  // namespace gpu
}  // namespace tf_gc
