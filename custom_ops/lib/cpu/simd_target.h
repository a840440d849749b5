// Compiles the functions between TF_GC_BEGIN_TARGET and TF_GC_END_TARGET for
// another instruction set than the rest of the file. On Arm there is no other
// one.
//
// Code in such a region may use templates and inline functions of other
// headers, but the file must include those headers, as this one does some,
// before the region. The linker keeps one copy of such a function for the whole
// program, and that copy must run on every processor.

#pragma once

#if TF_GC_NEON
#include <arm_neon.h>
#elif TF_GC_X86_64
#if !defined(__clang__)
// GCC's own header makes undefined registers so that it warns of them (GCC bug
// 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "custom_ops/lib/codec/block.h"
#include "custom_ops/lib/codec/counts_block.h"
#include "custom_ops/lib/codec/eight_bit_block.h"
#include "custom_ops/lib/codec/levels_block.h"
#include "custom_ops/lib/codec/one_bit_block.h"
#include "custom_ops/lib/codec/two_bit_block.h"
#include "custom_ops/lib/wire/wire.h"

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
