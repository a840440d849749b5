// The kernels for AVX2.

#include "custom_ops/lib/kernels.h"

#if TF_GC_X86_64

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

TF_GC_BEGIN_TARGET("avx2,f16c,popcnt")

#include "custom_ops/lib/simd_avx2.h"

namespace tf_gc {
namespace avx2 {
#include "custom_ops/lib/kernels_simd.inc"
}  // namespace avx2
}  // namespace tf_gc

TF_GC_END_TARGET

namespace tf_gc {

template <>
const Kernels<float>& Avx2Kernels() {
  return avx2::kSimdKernels<float>;
}
template <>
const Kernels<Half>& Avx2Kernels() {
  return avx2::kSimdKernels<Half>;
}
template <>
const Kernels<BFloat16>& Avx2Kernels() {
  return avx2::kSimdKernels<BFloat16>;
}

}  // namespace tf_gc

#endif  // TF_GC_X86_64
