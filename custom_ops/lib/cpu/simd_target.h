// Compiles the functions between TF_GC_BEGIN_TARGET and TF_GC_END_TARGET for
// another instruction set than the rest of the file.
//
// Code in such a region may use templates and inline functions of other
// headers, but the file must include those headers before the region. The
// linker keeps one copy of such a function for the whole program, and that copy
// must run on every processor.

#pragma once

#define TF_GC_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define TF_GC_BEGIN_TARGET(features)                                   \
  TF_GC_PRAGMA(clang attribute push(__attribute__((target(features))), \
                                    apply_to = function))
#define TF_GC_END_TARGET TF_GC_PRAGMA(clang attribute pop)
#else
#define TF_GC_BEGIN_TARGET(features) \
  TF_GC_PRAGMA(GCC push_options) TF_GC_PRAGMA(GCC target features)
#define TF_GC_END_TARGET TF_GC_PRAGMA(GCC pop_options)
#endif
