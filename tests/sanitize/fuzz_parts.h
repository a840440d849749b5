// The parts of the fuzz target that pack and unpack messages, that send rows,
// and that send factors.

#pragma once

#include "tests/sanitize/input.h"

namespace tf_gc {

void FuzzCompact(Input* input);
void FuzzRows(Input* input);
void FuzzFactors(Input* input);

}  // namespace tf_gc
