// The functions of functions.h for AVX-512.

#include "custom_ops/lib/cpu/functions.h"

#if TF_GC_X86_64

#if !defined(__clang__)
// GCC's own header makes undefined registers so that it warns of them (GCC bug
// 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/codec/levels_block.h"
#include "custom_ops/lib/codec/one_bit_block.h"
#include "custom_ops/lib/codec/two_bit_block.h"
#include "custom_ops/lib/cpu/simd_target.h"
#include "custom_ops/lib/wire/wire.h"

TF_GC_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,popcnt")

#include "custom_ops/lib/cpu/simd_avx512.h"

namespace tf_gc::avx512 {
#include "custom_ops/lib/cpu/functions_simd.inc"
}  // namespace tf_gc::avx512

TF_GC_END_TARGET

namespace tf_gc {

template <typename T>
const FunctionTable<T>& Avx512Functions() {
  return avx512::kSimdFunctions<T>;
}
template const FunctionTable<float>& Avx512Functions();
template const FunctionTable<Half>& Avx512Functions();
template const FunctionTable<BFloat16>& Avx512Functions();

}  // namespace tf_gc

#endif  // TF_GC_X86_64
