// The functions of functions.h for AVX2. Not in one file with those for
// AVX-512: GCC inlines less into a file that is twice as long.

#include "custom_ops/lib/cpu/functions.h"

#if TF_GC_X86_64

#include "custom_ops/lib/cpu/simd_target.h"

TF_GC_BEGIN_TARGET("avx2,f16c,popcnt")

#include "custom_ops/lib/cpu/simd_avx2.h"

namespace tf_gc::avx2 {
#include "custom_ops/lib/cpu/functions_simd.inc"
}  // namespace tf_gc::avx2

TF_GC_END_TARGET

namespace tf_gc {

TF_GC_DEFINE_TABLE(FunctionTable, Avx2Functions, avx2::kSimdFunctions);

}  // namespace tf_gc

#endif  // TF_GC_X86_64
