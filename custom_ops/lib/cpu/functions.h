// Tables of the functions that do the work of codec.h, a table for each
// instruction set. Internal to the library.
//
// A call through a pointer also keeps the compiler from moving arithmetic
// across the change of the rounding mode before or after the call.

#pragma once

#include <cstdint>

#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/numbers/host_device.h"
#include "custom_ops/lib/wire/wire.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TF_GC_X86_64 1
#else
#define TF_GC_X86_64 0
#endif
#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define TF_GC_NEON 1
#else
#define TF_GC_NEON 0
#endif

namespace tf_gc {

// The functions of codec.h with these names have the same parameters, but their
// residuals are always float32. `addend` is null, or has a float32 for each
// element, which is added to gradient + residual.
template <typename T>
struct CodecFunctions {
  void (*encode)(const T* gradient, const float* residual_in,
                 const float* addend, float* residual_out, int64_t size,
                 float threshold, uint8_t* codes, uint16_t* scales);
  void (*decode_sum)(const uint8_t* const* codes, const uint16_t* const* scales,
                     int64_t replicas, int64_t size, float threshold, T* sum);
  // Null for automatic codecs.
  void (*count)(const uint8_t* const* codes, const uint16_t* const* scales,
                int64_t replicas, int64_t blocks, int bits, uint8_t* counts);
};

template <typename T>
struct FunctionTable {
  CodecFunctions<T> codecs[kEndOfCodecs];  // by their numbers
  // Of residuals that are bfloat16, or int8 and then whole blocks.
  void (*widen)(DType dtype, const void* from, int64_t size, float* to);
  void (*narrow)(DType dtype, const float* from, int64_t size, void* to);
  void (*decode_counts)(const uint8_t* counts, int bits, int64_t size,
                        float unit, T* sum);

  constexpr const CodecFunctions<T>& Of(Codec codec) const {
    if (!EncodesGradients(codec)) Trap();
    return codecs[static_cast<int>(codec)];
  }
};

// Where element `first` of an array is that may be null.
template <typename T>
inline T* From(T* array, int64_t first) {
  return array == nullptr ? nullptr : array + first;
}

// Defines `const Table<T>& Function()`, which returns kTable<T>, for each T.
#define TF_GC_DEFINE_TABLE(Table, Function, kTable) \
  template <typename T>                             \
  const Table<T>& Function() {                      \
    return kTable<T>;                               \
  }                                                 \
  template const Table<float>& Function();          \
  template const Table<Half>& Function();           \
  template const Table<BFloat16>& Function()

// The one of ScalarX, Avx2X, Avx512X and NeonX that is for ActiveTarget().
#if TF_GC_X86_64
#define TF_GC_ACTIVE(X)                          \
  (ActiveTarget() == Target::kAvx512 ? Avx512##X \
   : ActiveTarget() == Target::kAvx2 ? Avx2##X   \
                                     : Scalar##X)
#elif TF_GC_NEON
#define TF_GC_ACTIVE(X) (ActiveTarget() == Target::kNeon ? Neon##X : Scalar##X)
#else
#define TF_GC_ACTIVE(X) Scalar##X
#endif

template <typename T>
const FunctionTable<T>& ScalarFunctions();

// Defined where TF_GC_X86_64.
template <typename T>
const FunctionTable<T>& Avx2Functions();
template <typename T>
const FunctionTable<T>& Avx512Functions();
// Defined where TF_GC_NEON.
template <typename T>
const FunctionTable<T>& NeonFunctions();

}  // namespace tf_gc
