// The functions of functions.h for AVX-512.

#include "custom_ops/lib/cpu/functions.h"

#if TF_GC_X86_64

#include "custom_ops/lib/cpu/simd_target.h"

TF_GC_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,popcnt")

#include "custom_ops/lib/cpu/simd_avx512.h"

namespace tf_gc::avx512 {
#include "custom_ops/lib/cpu/functions_simd.inc"
}  // namespace tf_gc::avx512

TF_GC_END_TARGET

namespace tf_gc {

TF_GC_DEFINE_TABLE(FunctionTable, Avx512Functions, avx512::kSimdFunctions);

}  // namespace tf_gc

#endif  // TF_GC_X86_64
