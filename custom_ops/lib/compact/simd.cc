// The functions of functions.h for AVX2 and AVX-512, each with BMI2, and NEON.

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "custom_ops/lib/compact/bits.h"
#include "custom_ops/lib/compact/frequencies.h"
#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/cpu/simd_target.h"
#include "custom_ops/lib/wire/compact_wire.h"

#if TF_GC_X86_64

TF_GC_BEGIN_TARGET("avx2,bmi2,popcnt")

#include "custom_ops/lib/compact/vectors_avx2.h"

namespace tf_gc::avx2 {
namespace {
#include "custom_ops/lib/compact/bytes.inc"
#include "custom_ops/lib/compact/mask_bmi2.inc"
#include "custom_ops/lib/compact/planes_avx2.inc"
// Uses what the files above define.
#include "custom_ops/lib/compact/functions.inc"
}  // namespace
}  // namespace tf_gc::avx2

TF_GC_END_TARGET

TF_GC_BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")

#include "custom_ops/lib/compact/vectors_avx512.h"

namespace tf_gc::avx512 {
namespace {
#include "custom_ops/lib/compact/mask_bmi2.inc"
#include "custom_ops/lib/compact/planes_avx2.inc"
// Uses what the files above define.
#include "custom_ops/lib/compact/functions.inc"
}  // namespace
}  // namespace tf_gc::avx512

TF_GC_END_TARGET

namespace tf_gc {

const CompactFunctions& Avx2CompactFunctions() {
  return avx2::kCompactFunctions;
}

const CompactFunctions& Avx512CompactFunctions() {
  return avx512::kCompactFunctions;
}

}  // namespace tf_gc

#elif TF_GC_NEON

#include "custom_ops/lib/compact/vectors_neon.h"

namespace tf_gc {
namespace neon {
namespace {
#include "custom_ops/lib/compact/bytes.inc"
#include "custom_ops/lib/compact/mask_words.inc"
// Uses what the files above define.
#include "custom_ops/lib/compact/functions.inc"
}  // namespace
}  // namespace neon

const CompactFunctions& NeonCompactFunctions() {
  return neon::kCompactFunctions;
}

}  // namespace tf_gc

#endif
