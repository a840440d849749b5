// The functions of functions.h for AVX-512.

#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/low_rank/functions.h"

#if TF_GC_X86_64

#if !defined(__clang__)
// GCC's own header makes undefined registers so that it warns of them (GCC bug
// 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

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

TF_GC_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,popcnt")

#include "custom_ops/lib/cpu/simd_avx512.h"

namespace tf_gc {
namespace avx512 {
#include "custom_ops/lib/low_rank/factors_simd.inc"
}  // namespace avx512
}  // namespace tf_gc

TF_GC_END_TARGET

namespace tf_gc {

template <>
const FactorFunctions<float>& Avx512FactorFunctions() {
  return avx512::kFunctions<float>;
}
template <>
const FactorFunctions<Half>& Avx512FactorFunctions() {
  return avx512::kFunctions<Half>;
}
template <>
const FactorFunctions<BFloat16>& Avx512FactorFunctions() {
  return avx512::kFunctions<BFloat16>;
}

}  // namespace tf_gc

#endif  // TF_GC_X86_64
