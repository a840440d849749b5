// The functions of functions.h for AVX2.

#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/low_rank/functions.h"

#if TF_GC_X86_64

#include <immintrin.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/codec/levels_block.h"
#include "custom_ops/lib/codec/one_bit_block.h"
#include "custom_ops/lib/codec/two_bit_block.h"
#include "custom_ops/lib/cpu/simd_target.h"
#include "custom_ops/lib/wire/wire.h"

TF_GC_BEGIN_TARGET("avx2,f16c,popcnt")

#include "custom_ops/lib/cpu/simd_avx2.h"

namespace tf_gc {
namespace avx2 {
#include "custom_ops/lib/low_rank/factors_simd.inc"
}  // namespace avx2
}  // namespace tf_gc

TF_GC_END_TARGET

namespace tf_gc {

template <>
const FactorFunctions<float>& Avx2FactorFunctions() {
  return avx2::kFunctions<float>;
}
template <>
const FactorFunctions<Half>& Avx2FactorFunctions() {
  return avx2::kFunctions<Half>;
}
template <>
const FactorFunctions<BFloat16>& Avx2FactorFunctions() {
  return avx2::kFunctions<BFloat16>;
}

}  // namespace tf_gc

#endif  // TF_GC_X86_64
