// Chooses the functions of functions.h for this processor. Internal to the
// library.

#ifndef TF_GC_CUSTOM_OPS_LIB_COMPACT_PROCESSOR_H_
#define TF_GC_CUSTOM_OPS_LIB_COMPACT_PROCESSOR_H_

#include "custom_ops/lib/compact/functions.h"

namespace tf_gc {

// The functions of ActiveTarget(). Those that pick out bits are the scalar ones
// where the processor takes many cycles for it.
const CompactFunctions& ActiveCompactFunctions();

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_COMPACT_PROCESSOR_H_
