// Times calls of the codec library, for benchmarks/codec.py: a call by Python
// would take as long as a small tensor.

#include <chrono>
#include <cstdint>
#include <cstring>

#include "custom_ops/lib/c_api/c_api.h"

namespace {

// Seconds of `repetitions` calls, negative if one returns 0.
template <typename Call>
double Time(int repetitions, Call call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) {
    if (!call()) return -1;
  }
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

extern "C" {

// Seconds that `repetitions` equal calls take, negative if a number is unknown.
TF_GC_EXPORT double tf_gc_time_encode(int repetitions, int codec, int dtype,
                                      const void* gradient,
                                      const float* residual_in,
                                      float* residual_out, int64_t size,
                                      float threshold, uint8_t* codes,
                                      uint16_t* scales);
TF_GC_EXPORT double tf_gc_time_decode_sum(int repetitions, int codec, int dtype,
                                          const uint8_t* const* codes,
                                          const uint16_t* const* scales,
                                          int64_t replicas, int64_t size,
                                          float threshold, void* sum);
TF_GC_EXPORT double tf_gc_time_memcpy(int repetitions, void* to,
                                      const void* from, int64_t bytes);

}  // extern "C"

double tf_gc_time_encode(int repetitions, int codec, int dtype,
                         const void* gradient, const float* residual_in,
                         float* residual_out, int64_t size, float threshold,
                         uint8_t* codes, uint16_t* scales) {
  return Time(repetitions, [=] {
    return tf_gc_encode(codec, dtype, gradient, residual_in, residual_out, size,
                        threshold, codes, scales);
  });
}

double tf_gc_time_decode_sum(int repetitions, int codec, int dtype,
                             const uint8_t* const* codes,
                             const uint16_t* const* scales, int64_t replicas,
                             int64_t size, float threshold, void* sum) {
  return Time(repetitions, [=] {
    return tf_gc_decode_sum(codec, dtype, codes, scales, replicas, size,
                            threshold, sum);
  });
}

double tf_gc_time_memcpy(int repetitions, void* to, const void* from,
                         int64_t bytes) {
  return Time(repetitions, [=] {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return 1;
  });
}
