// Checks of the fuzz target: conditions, and that all targets agree.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "custom_ops/lib/cpu/codec.h"

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                        \
    }                                                                 \
  } while (false)

namespace tf_gc {

// Calls run(), which returns the bytes that it computed, with each target.
template <typename Run>
void SameForAllTargets(Run run) {
  CHECK(ForceTarget(Target::kScalar));
  const std::vector<uint8_t> expected = run();
  for (Target target : {Target::kAvx2, Target::kAvx512}) {
    if (ForceTarget(target)) CHECK(run() == expected);
  }
}

}  // namespace tf_gc
