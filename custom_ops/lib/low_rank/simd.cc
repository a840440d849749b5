// The functions of factors.h for AVX2, AVX-512 and NEON.

#include <cfloat>
#include <cmath>
#include <vector>

#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/cpu/simd_target.h"
#include "custom_ops/lib/low_rank/factors.h"

#if TF_GC_X86_64

TF_GC_BEGIN_TARGET("avx2,f16c,popcnt")

#include "custom_ops/lib/cpu/simd_avx2.h"

namespace tf_gc::avx2 {
#include "custom_ops/lib/low_rank/factors_simd.inc"
}  // namespace tf_gc::avx2

TF_GC_END_TARGET

TF_GC_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,popcnt")

#include "custom_ops/lib/cpu/simd_avx512.h"

namespace tf_gc::avx512 {
#include "custom_ops/lib/low_rank/factors_simd.inc"
}  // namespace tf_gc::avx512

TF_GC_END_TARGET

namespace tf_gc {

TF_GC_DEFINE_TABLE(FactorFunctions, Avx2FactorFunctions, avx2::kFunctions);
TF_GC_DEFINE_TABLE(FactorFunctions, Avx512FactorFunctions, avx512::kFunctions);

}  // namespace tf_gc

#elif TF_GC_NEON

#include "custom_ops/lib/cpu/simd_neon.h"

namespace tf_gc {
namespace neon {
#include "custom_ops/lib/low_rank/factors_simd.inc"
}  // namespace neon

TF_GC_DEFINE_TABLE(FactorFunctions, NeonFactorFunctions, neon::kFunctions);

}  // namespace tf_gc

#endif
