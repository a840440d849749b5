// The kernels for AVX-512.

#include "custom_ops/lib/kernels.h"

#if TF_GC_X86_64

#if !defined(__clang__)
// GCC's own header makes undefined registers so that it warns of them (GCC bug
// 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "custom_ops/lib/block.h"
#include "custom_ops/lib/counts_block.h"
#include "custom_ops/lib/one_bit_block.h"
#include "custom_ops/lib/simd_target.h"
#include "custom_ops/lib/two_bit_block.h"
#include "custom_ops/lib/wire.h"

TF_GC_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,popcnt")

#include "custom_ops/lib/simd_avx512.h"

namespace tf_gc {
namespace avx512 {
#include "custom_ops/lib/kernels_simd.inc"
}  // namespace avx512
}  // namespace tf_gc

TF_GC_END_TARGET

namespace tf_gc {

template <>
const Kernels<float>& Avx512Kernels() {
  return avx512::kSimdKernels<float>;
}
template <>
const Kernels<Half>& Avx512Kernels() {
  return avx512::kSimdKernels<Half>;
}
template <>
const Kernels<BFloat16>& Avx512Kernels() {
  return avx512::kSimdKernels<BFloat16>;
}

}  // namespace tf_gc

#endif  // TF_GC_X86_64
