// The part of the fuzz target that packs and unpacks messages.

#ifndef TF_GC_TESTS_SANITIZE_FUZZ_COMPACT_H_
#define TF_GC_TESTS_SANITIZE_FUZZ_COMPACT_H_

#include "tests/sanitize/input.h"

namespace tf_gc {

void FuzzCompact(Input* input);

}  // namespace tf_gc

#endif  // TF_GC_TESTS_SANITIZE_FUZZ_COMPACT_H_
