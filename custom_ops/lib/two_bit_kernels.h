// The functions of two_bit.h for each instruction set, behind pointers.
// Internal to the library.
//
// The calls go through pointers also so that the compiler cannot move
// arithmetic across the change of the rounding mode around them.

#ifndef TF_GC_CUSTOM_OPS_LIB_TWO_BIT_KERNELS_H_
#define TF_GC_CUSTOM_OPS_LIB_TWO_BIT_KERNELS_H_

#include <cstdint>

#include "custom_ops/lib/two_bit.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TF_GC_X86_64 1
#else
#define TF_GC_X86_64 0
#endif

namespace tf_gc {

// The parameters are those of the functions of the same names. `addend` is
// null, or a float32 for each element that is added to gradient + residual.
template <typename T>
struct Kernels {
  void (*encode_fixed)(const T* gradient, const float* residual_in,
                       float* residual_out, int64_t size, float threshold,
                       uint8_t* codes);
  void (*encode_auto)(const T* gradient, const float* residual_in,
                      const float* addend, float* residual_out, int64_t size,
                      uint8_t* codes, uint16_t* scales);
  void (*decode_sum_fixed)(const uint8_t* const* codes, int64_t replicas,
                           int64_t size, float threshold, T* sum);
  void (*decode_sum_auto)(const uint8_t* const* codes,
                          const uint16_t* const* scales, int64_t replicas,
                          int64_t size, T* sum);
  void (*count_fixed)(const uint8_t* const* codes, int64_t replicas,
                      int64_t blocks, int bits, uint8_t* counts);
  void (*decode_counts)(const uint8_t* counts, int bits, int64_t size,
                        float threshold, T* sum);
};

template <typename T>
const Kernels<T>& ScalarKernels();

// Defined where TF_GC_X86_64.
template <typename T>
const Kernels<T>& Avx2Kernels();
template <typename T>
const Kernels<T>& Avx512Kernels();

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_TWO_BIT_KERNELS_H_
