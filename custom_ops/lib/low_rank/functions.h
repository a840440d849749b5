// The functions of factors.h for each instruction set. Internal to the library.

#ifndef TF_GC_CUSTOM_OPS_LIB_LOW_RANK_FUNCTIONS_H_
#define TF_GC_CUSTOM_OPS_LIB_LOW_RANK_FUNCTIONS_H_

#include <cstdint>

#include "custom_ops/lib/low_rank/factors.h"

namespace tf_gc {

template <typename T>
struct FactorFunctions {
  void (*project)(const FactoredMatrix& matrix, int64_t first, int64_t last,
                  const T* gradient, const float* residual, const float* q,
                  float* p);
  void (*encode)(const FactoredMatrix& matrix, int64_t first, int64_t last,
                 const T* gradient, const float* residual_in,
                 float* residual_out, const float* p, float* q);
  void (*multiply)(const FactoredMatrix& matrix, int64_t first, int64_t last,
                   const float* p, const float* q, T* product);
};

template <typename T>
const FactorFunctions<T>& ScalarFactorFunctions();

// Defined where TF_GC_X86_64.
template <typename T>
const FactorFunctions<T>& Avx2FactorFunctions();
template <typename T>
const FactorFunctions<T>& Avx512FactorFunctions();

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_LOW_RANK_FUNCTIONS_H_
