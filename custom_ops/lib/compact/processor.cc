// Chooses the functions of functions.h for this processor.

#include "custom_ops/lib/compact/functions.h"
#include "custom_ops/lib/cpu/codec.h"

#if TF_GC_X86_64
#include <cpuid.h>
#endif

namespace tf_gc {
namespace {

#if TF_GC_X86_64
// AMD's processors before Zen 3 have microcode for pext and pdep, which takes
// a cycle or more for each bit (family 17h).
bool PicksOutBitsSlowly() {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return true;
  const unsigned family = (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
  return __builtin_cpu_is("amd") && family <= 0x17;
}

// With the scalar functions where those for SIMD would be slow or fail.
CompactFunctions ForThisProcessor(const CompactFunctions& simd) {
  __builtin_cpu_init();
  CompactFunctions functions = simd;
  if (!__builtin_cpu_supports("bmi2")) return ScalarCompactFunctions();
  if (PicksOutBitsSlowly()) {
    functions.list_blocks = ScalarCompactFunctions().list_blocks;
    functions.pick_low = ScalarCompactFunctions().pick_low;
    functions.put_low = ScalarCompactFunctions().put_low;
    functions.cost = ScalarCompactFunctions().cost;
    functions.split = ScalarCompactFunctions().split;
    functions.read = ScalarCompactFunctions().read;
    functions.join = ScalarCompactFunctions().join;
  }
  return functions;
}
#endif

}  // namespace

const CompactFunctions& ActiveCompactFunctions() {
#if TF_GC_X86_64
  switch (ActiveTarget()) {
    case Target::kAvx512: {
      static const auto functions = ForThisProcessor(Avx512CompactFunctions());
      return functions;
    }
    case Target::kAvx2: {
      static const auto functions = ForThisProcessor(Avx2CompactFunctions());
      return functions;
    }
    default:
      return ScalarCompactFunctions();
  }
#else
  return TF_GC_ACTIVE(CompactFunctions)();
#endif
}

}  // namespace tf_gc
