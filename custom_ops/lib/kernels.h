// The functions of codec.h for each codec and instruction set, behind pointers.
// Internal to the library.
//
// The calls go through pointers also so that the compiler cannot move
// arithmetic across the change of the rounding mode around them.

#ifndef TF_GC_CUSTOM_OPS_LIB_KERNELS_H_
#define TF_GC_CUSTOM_OPS_LIB_KERNELS_H_

#include <cstdint>

#include "custom_ops/lib/codec.h"
#include "custom_ops/lib/wire.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TF_GC_X86_64 1
#else
#define TF_GC_X86_64 0
#endif

namespace tf_gc {

// The parameters are those of the functions of the same names. `addend` is
// null, or a float32 for each element that is added to gradient + residual.
template <typename T>
struct CodecKernels {
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
struct Kernels {
  CodecKernels<T> two_bit_fixed;
  CodecKernels<T> two_bit_auto;
  CodecKernels<T> one_bit_fixed;
  CodecKernels<T> one_bit_auto;
  void (*decode_counts)(const uint8_t* counts, int bits, int64_t size,
                        float unit, T* sum);

  constexpr const CodecKernels<T>& Of(Codec codec) const {
    switch (codec) {
      case Codec::kTwoBitFixed:
        return two_bit_fixed;
      case Codec::kTwoBitAuto:
        return two_bit_auto;
      case Codec::kOneBitFixed:
        return one_bit_fixed;
      default:
        return one_bit_auto;
    }
  }
};

template <typename T>
const Kernels<T>& ScalarKernels();

// Defined where TF_GC_X86_64.
template <typename T>
const Kernels<T>& Avx2Kernels();
template <typename T>
const Kernels<T>& Avx512Kernels();

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_KERNELS_H_
