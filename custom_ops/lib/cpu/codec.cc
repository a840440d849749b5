// Chooses the instruction set, once, and sets the floating-point mode for each
// call.

#include "custom_ops/lib/cpu/codec.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "custom_ops/lib/codec/eight_bit_block.h"
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
Target Detect() { return TF_GC_NEON ? Target::kNeon : Target::kScalar; }
#endif

std::atomic<Target>& Active() {
  static std::atomic<Target> active(BestTarget());
  return active;
}

// Encode() and Reencode() work on parts of this many blocks, which stay in the
// first cache.
constexpr int64_t kPartBlocks = 16;
constexpr int64_t kPartSize = kPartBlocks * kBlockSize;

// Encodes with residuals of a dtype. Smaller ones are float32 for a part at a
// time. `addend` is as in functions.h.
template <typename T>
void EncodeWith(DType residual_dtype, Codec codec, const T* gradient,
                const void* residual_in, const float* addend,
                void* residual_out, int64_t size, float threshold,
                uint8_t* codes, uint16_t* scales) {
  const FunctionTable<T>& table = TF_GC_ACTIVE(Functions<T>)();
  const auto encode = table.Of(codec).encode;
  if (residual_dtype == DType::kFloat || residual_in == nullptr) {
    return encode(gradient, static_cast<const float*>(residual_in), addend,
                  static_cast<float*>(residual_out), size, threshold, codes,
                  scales);
  }
  if (residual_dtype == DType::kHalf || !IsAuto(codec)) Trap();
  const auto* before = static_cast<const char*>(residual_in);
  auto* after = static_cast<char*>(residual_out);
  const int64_t part_bytes = ResidualBytes(residual_dtype, kPartSize);
  float residual[kPartSize];
  for (int64_t first = 0; first < size; first += kPartSize) {
    const int64_t count = std::min(size - first, kPartSize);
    const int64_t block = first / kBlockSize;
    table.widen(residual_dtype, before, count, residual);
#if defined(__GNUC__)
    // The next part arrives meanwhile: a processor fetches by itself only up to
    // the end of a page of memory.
    constexpr int64_t kLine = 64;
    for (int64_t i = part_bytes; i < 2 * part_bytes; i += kLine) {
      __builtin_prefetch(before + i);
    }
#endif
    encode(gradient + first, residual, From(addend, first), residual, count,
           threshold, codes + block * CodeBytes(codec), scales + block);
    table.narrow(residual_dtype, residual, count, after);
    before += part_bytes;
    after += part_bytes;
  }
}

}  // namespace

Target BestTarget() {
  static const Target best = Detect();
  return best;
}

Target ActiveTarget() { return Active().load(std::memory_order_relaxed); }

bool ForceTarget(Target target) {
  // A processor of x86 that has a target also has all targets before it.
  const Target least = TF_GC_NEON ? Target::kNeon : Target::kAvx2;
  if (target != Target::kScalar && (target < least || target > BestTarget())) {
    return false;
  }
  Active().store(target, std::memory_order_relaxed);
  return true;
}

template <typename T>
void Encode(Codec codec, const T* gradient, const void* residual_in,
            void* residual_out, int64_t size, float threshold, uint8_t* codes,
            uint16_t* scales, DType residual_dtype) {
  const ScopedExactFloatMode mode;
  EncodeWith(residual_dtype, codec, gradient, residual_in, nullptr,
             residual_out, size, threshold, codes, scales);
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
              const T* gradient, const void* residual_in, void* residual_out,
              int64_t size, uint8_t* sum_codes, uint16_t* sum_scales,
              DType residual_dtype) {
  if (!SumsIn(codec, sum_codec)) Trap();
  float sum[kPartSize] = {};
  const ScopedExactFloatMode mode;
  const auto* before = static_cast<const char*>(residual_in);
  auto* after = static_cast<char*>(residual_out);
  const auto decode_sum = TF_GC_ACTIVE(Functions<float>)().Of(codec).decode_sum;
  std::vector<const uint8_t*> part_codes(codes, codes + messages);
  std::vector<const uint16_t*> part_scales(scales, scales + messages);
  for (int64_t first = 0; first < size; first += kPartSize) {
    const int64_t count = std::min(size - first, kPartSize);
    const int64_t block = first / kBlockSize;
    if (messages > 0) {
      decode_sum(part_codes.data(), part_scales.data(), messages, count, 0.0f,
                 sum);
    }
    EncodeWith(residual_dtype, sum_codec, gradient + first,
               From(before, ResidualBytes(residual_dtype, first)), sum,
               From(after, ResidualBytes(residual_dtype, first)), count, 0.0f,
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

#define TF_GC_INSTANTIATE(T)                                                   \
  template void Encode<T>(Codec, const T*, const void*, void*, int64_t, float, \
                          uint8_t*, uint16_t*, DType);                         \
  template void DecodeSum<T>(Codec, const uint8_t* const*,                     \
                             const uint16_t* const*, int64_t, int64_t, float,  \
                             T*);                                              \
  template void Reencode<T>(                                                   \
      Codec, Codec, const uint8_t* const*, const uint16_t* const*, int64_t,    \
      const T*, const void*, void*, int64_t, uint8_t*, uint16_t*, DType);      \
  template void DecodeCounts<T>(const uint8_t*, int, int64_t, float, T*)

TF_GC_INSTANTIATE(float);
TF_GC_INSTANTIATE(Half);
TF_GC_INSTANTIATE(BFloat16);
#undef TF_GC_INSTANTIATE

}  // namespace tf_gc
