// Chooses the instruction set, once, and sets the floating-point mode for each
// call.

#include "custom_ops/lib/cpu/codec.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "custom_ops/lib/cpu/float_mode.h"
#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/wire/wire.h"

#if TF_GC_X86_64
#include <cpuid.h>
#endif

namespace tf_gc {
namespace {

#if TF_GC_X86_64
// Older compilers do not know __builtin_cpu_supports("f16c").
bool HasF16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

// These also ask whether the operating system saves the registers.
Target Detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !HasF16c()) return Target::kScalar;
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return Target::kAvx2;
  }
  return Target::kAvx512;
}
#else
Target Detect() { return Target::kScalar; }
#endif

std::atomic<Target>& Active() {
  static std::atomic<Target> active(BestTarget());
  return active;
}

}  // namespace

Target BestTarget() {
  static const Target best = Detect();
  return best;
}

Target ActiveTarget() { return Active().load(std::memory_order_relaxed); }

bool ForceTarget(Target target) {
  // A processor that has a target also has all targets before it.
  if (target < Target::kScalar || target > BestTarget()) return false;
  Active().store(target, std::memory_order_relaxed);
  return true;
}

template <typename T>
void Encode(Codec codec, const T* gradient, const float* residual_in,
            float* residual_out, int64_t size, float threshold, uint8_t* codes,
            uint16_t* scales) {
  const ScopedExactFloatMode mode;
  TF_GC_ACTIVE(Functions<T>)().Of(codec).encode(gradient, residual_in, nullptr,
                                                residual_out, size, threshold,
                                                codes, scales);
}

template <typename T>
void DecodeSum(Codec codec, const uint8_t* const* codes,
               const uint16_t* const* scales, int64_t replicas, int64_t size,
               float threshold, T* sum) {
  const ScopedExactFloatMode mode;
  TF_GC_ACTIVE(Functions<T>)().Of(codec).decode_sum(codes, scales, replicas,
                                                    size, threshold, sum);
}

template <typename T>
void Reencode(Codec codec, Codec sum_codec, const uint8_t* const* codes,
              const uint16_t* const* scales, int64_t messages,
              const T* gradient, const float* residual_in, float* residual_out,
              int64_t size, uint8_t* sum_codes, uint16_t* sum_scales) {
  // Sums in parts that stay in the first cache until they are encoded.
  constexpr int64_t kPartBlocks = 16;
  if (!SumsIn(codec, sum_codec)) Trap();
  float sum[kPartBlocks * kBlockSize] = {};
  const ScopedExactFloatMode mode;
  const auto encode = TF_GC_ACTIVE(Functions<T>)().Of(sum_codec).encode;
  const auto decode_sum = TF_GC_ACTIVE(Functions<float>)().Of(codec).decode_sum;
  std::vector<const uint8_t*> part_codes(codes, codes + messages);
  std::vector<const uint16_t*> part_scales(scales, scales + messages);
  for (int64_t first = 0; first < size; first += kPartBlocks * kBlockSize) {
    const int64_t count = std::min(size - first, kPartBlocks * kBlockSize);
    const int64_t block = first / kBlockSize;
    if (messages > 0) {
      decode_sum(part_codes.data(), part_scales.data(), messages, count, 0.0f,
                 sum);
    }
    encode(gradient + first, From(residual_in, first), sum,
           From(residual_out, first), count, 0.0f,
           sum_codes + block * CodeBytes(sum_codec), sum_scales + block);
    for (const uint8_t*& part : part_codes) {
      part += kPartBlocks * CodeBytes(codec);
    }
    for (const uint16_t*& part : part_scales) part += kPartBlocks;
  }
}

void Count(Codec codec, const uint8_t* const* codes,
           const uint16_t* const* scales, int64_t replicas, int64_t blocks,
           int bits, uint8_t* counts) {
  if (!IsFixed(codec)) Trap();
  TF_GC_ACTIVE(Functions<float>)().Of(codec).count(codes, scales, replicas,
                                                   blocks, bits, counts);
}

template <typename T>
void DecodeCounts(const uint8_t* counts, int bits, int64_t size, float unit,
                  T* sum) {
  const ScopedExactFloatMode mode;
  TF_GC_ACTIVE(Functions<T>)().decode_counts(counts, bits, size, unit, sum);
}

#define TF_GC_INSTANTIATE(T)                                                  \
  template void Encode<T>(Codec, const T*, const float*, float*, int64_t,     \
                          float, uint8_t*, uint16_t*);                        \
  template void DecodeSum<T>(Codec, const uint8_t* const*,                    \
                             const uint16_t* const*, int64_t, int64_t, float, \
                             T*);                                             \
  template void Reencode<T>(                                                  \
      Codec, Codec, const uint8_t* const*, const uint16_t* const*, int64_t,   \
      const T*, const float*, float*, int64_t, uint8_t*, uint16_t*);          \
  template void DecodeCounts<T>(const uint8_t*, int, int64_t, float, T*)

TF_GC_INSTANTIATE(float);
TF_GC_INSTANTIATE(Half);
TF_GC_INSTANTIATE(BFloat16);
#undef TF_GC_INSTANTIATE

}  // namespace tf_gc
