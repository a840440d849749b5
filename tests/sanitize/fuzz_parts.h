// The parts of the fuzz target that pack and unpack messages, that send rows,
// and that send factors.

#ifndef TF_GC_TESTS_SANITIZE_FUZZ_PARTS_H_
#define TF_GC_TESTS_SANITIZE_FUZZ_PARTS_H_

#include "tests/sanitize/input.h"

namespace tf_gc {

void FuzzCompact(Input* input);
void FuzzRows(Input* input);
void FuzzFactors(Input* input);

}  // namespace tf_gc

#endif  // TF_GC_TESTS_SANITIZE_FUZZ_PARTS_H_
