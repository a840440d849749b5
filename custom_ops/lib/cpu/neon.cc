// The functions of functions.h for NEON.

#include "custom_ops/lib/cpu/functions.h"

#if TF_GC_NEON

#include "custom_ops/lib/cpu/simd_target.h"
// Uses what the files above define.
#include "custom_ops/lib/cpu/simd_neon.h"

namespace tf_gc {
namespace neon {
#include "custom_ops/lib/cpu/functions_simd.inc"
}  // namespace neon

TF_GC_DEFINE_TABLE(FunctionTable, NeonFunctions, neon::kSimdFunctions);

}  // namespace tf_gc

#endif  // TF_GC_NEON
