#include "custom_ops/lib/c_api.h"

#include <chrono>
#include <cstdint>
#include <cstring>

#include "custom_ops/lib/float_mode.h"
#include "custom_ops/lib/two_bit.h"
#include "custom_ops/lib/wire.h"

namespace {

// call(T*) with the type of the number `dtype`.
template <typename Call>
int ForType(int dtype, Call call) {
  switch (dtype) {
    case TF_GC_FLOAT:
      return call(static_cast<float*>(nullptr));
    case TF_GC_HALF:
      return call(static_cast<tf_gc::Half*>(nullptr));
    case TF_GC_BFLOAT16:
      return call(static_cast<tf_gc::BFloat16*>(nullptr));
  }
  return 0;
}

template <typename T>
const T* Typed(const void* data, T*) {
  return static_cast<const T*>(data);
}

template <typename T>
T* Typed(void* data, T*) {
  return static_cast<T*>(data);
}

bool IsCountBits(int bits) { return bits == 4 || bits == 8 || bits == 16; }

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

int tf_gc_encode(int codec, int dtype, const void* gradient,
                 const float* residual_in, float* residual_out, int64_t size,
                 float threshold, uint8_t* codes, uint16_t* scales) {
  return ForType(dtype, [=](auto* type) {
    switch (static_cast<tf_gc::Codec>(codec)) {
      case tf_gc::Codec::kTwoBitFixed:
        tf_gc::EncodeFixed(Typed(gradient, type), residual_in, residual_out,
                           size, threshold, codes);
        return 1;
      case tf_gc::Codec::kTwoBitAuto:
        tf_gc::EncodeAuto(Typed(gradient, type), residual_in, residual_out,
                          size, codes, scales);
        return 1;
      default:
        return 0;
    }
  });
}

int tf_gc_decode_sum(int codec, int dtype, const uint8_t* const* codes,
                     const uint16_t* const* scales, int64_t replicas,
                     int64_t size, float threshold, void* sum) {
  return ForType(dtype, [=](auto* type) {
    switch (static_cast<tf_gc::Codec>(codec)) {
      case tf_gc::Codec::kTwoBitFixed:
        tf_gc::DecodeSumFixed(codes, replicas, size, threshold,
                              Typed(sum, type));
        return 1;
      case tf_gc::Codec::kTwoBitAuto:
        tf_gc::DecodeSumAuto(codes, scales, replicas, size, Typed(sum, type));
        return 1;
      default:
        return 0;
    }
  });
}

int tf_gc_reencode_auto(int dtype, const uint8_t* const* codes,
                        const uint16_t* const* scales, int64_t messages,
                        const void* gradient, const float* residual_in,
                        float* residual_out, int64_t size, uint8_t* codes_out,
                        uint16_t* scales_out) {
  return ForType(dtype, [=](auto* type) {
    tf_gc::ReencodeAuto(codes, scales, messages, Typed(gradient, type),
                        residual_in, residual_out, size, codes_out, scales_out);
    return 1;
  });
}

int tf_gc_count_fixed(const uint8_t* const* codes, int64_t replicas,
                      int64_t blocks, int bits, uint8_t* counts) {
  if (!IsCountBits(bits)) return 0;
  tf_gc::CountFixed(codes, replicas, blocks, bits, counts);
  return 1;
}

int tf_gc_decode_counts(int dtype, const uint8_t* counts, int bits,
                        int64_t size, float threshold, void* sum) {
  if (!IsCountBits(bits)) return 0;
  return ForType(dtype, [=](auto* type) {
    tf_gc::DecodeCounts(counts, bits, size, threshold, Typed(sum, type));
    return 1;
  });
}

int tf_gc_wire_version(void) { return tf_gc::kWireVersion; }

int tf_gc_block_bytes(int codec, int64_t replicas) {
  if (replicas < 1) return 0;
  switch (static_cast<tf_gc::Codec>(codec)) {
    case tf_gc::Codec::kTwoBitFixed:
      if (replicas > tf_gc::kMaxReplicas) return 0;
      return static_cast<int>(tf_gc::CodeBytes(
          replicas == 1 ? tf_gc::Codec::kTwoBitFixed
                        : tf_gc::CountsCodec(tf_gc::CountBits(replicas))));
    case tf_gc::Codec::kTwoBitAuto:
      return static_cast<int>(tf_gc::CodeBytes(tf_gc::Codec::kTwoBitAuto) +
                              tf_gc::kScaleBytes);
    default:
      return 0;
  }
}

int tf_gc_best_target(void) { return static_cast<int>(tf_gc::BestTarget()); }

int tf_gc_active_target(void) {
  return static_cast<int>(tf_gc::ActiveTarget());
}

int tf_gc_force_target(int target) {
  return tf_gc::ForceTarget(static_cast<tf_gc::Target>(target));
}

uint64_t tf_gc_float_mode(void) { return tf_gc::FloatMode(); }

void tf_gc_set_float_mode(uint64_t mode) { tf_gc::SetFloatMode(mode); }

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
