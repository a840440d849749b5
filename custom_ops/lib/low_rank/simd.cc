// The functions of factors.h for AVX2 and AVX-512.

#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/low_rank/factors.h"

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

template <typename T>
const FactorFunctions<T>& Avx2FactorFunctions() {
  return avx2::kFunctions<T>;
}
template const FactorFunctions<float>& Avx2FactorFunctions();
template const FactorFunctions<Half>& Avx2FactorFunctions();
template const FactorFunctions<BFloat16>& Avx2FactorFunctions();

template <typename T>
const FactorFunctions<T>& Avx512FactorFunctions() {
  return avx512::kFunctions<T>;
}
template const FactorFunctions<float>& Avx512FactorFunctions();
template const FactorFunctions<Half>& Avx512FactorFunctions();
template const FactorFunctions<BFloat16>& Avx512FactorFunctions();

}  // namespace tf_gc

#endif  // TF_GC_X86_64
