// Low rank on the CPU: a matrix is sent as the product of two thin factors.
// tf_gc/reducers/factors.py describes the method.
//
// A matrix M = gradient + residual has `rows` and `columns`, row by row. A
// factor has `rank` columns, one after the other: P has columns of `rows`
// elements, Q of `columns`. All arithmetic is in one order, which
// tests/oracles/factors.py defines a second time: results are the same bits for
// every Target, number of threads and split into ranges.

#pragma once

#include <cstdint>

#include "custom_ops/lib/numbers/floats.h"

namespace tf_gc {

constexpr int kMostRank = 64;

struct FactoredMatrix {
  int64_t rows;
  int64_t columns;
  int rank;
};

// For the rows in [first, last): writes P = M Q. A row for which P is not
// finite counts for nothing: it becomes zero.
template <typename T>
void ProjectMatrix(const FactoredMatrix& matrix, int64_t first, int64_t last,
                   const T* gradient, const float* residual, const float* q,
                   float* p);

// For the columns in [first, last): writes Q = M' P, and the new residual
// M - P Q'. Of a column for which Q is not finite, Q becomes NaN, and the
// residual stays. An element of the new residual that is not below
// kMaxMagnitude becomes zero. `residual_in` and `residual_out` are either the
// same array or do not overlap.
template <typename T>
void EncodeMatrix(const FactoredMatrix& matrix, int64_t first, int64_t last,
                  const T* gradient, const float* residual_in,
                  float* residual_out, const float* p, float* q);

// For the rows in [first, last): writes P Q'.
template <typename T>
void MultiplyFactors(const FactoredMatrix& matrix, int64_t first, int64_t last,
                     const float* p, const float* q, T* product);

// Makes `rank` columns of `n` elements orthonormal; they span what they spanned
// before. A column that depends on those before it is replaced by a fixed one:
// so columns of zeros become the ones to start with. Elements have to be
// finite.
void MakeOrthonormal(int64_t n, int rank, float* columns);

// Internal to the library: these functions for each instruction set.

template <typename T>
struct FactorFunctions {
  void (*project)(const FactoredMatrix& matrix, int64_t first, int64_t last,
                  const T* gradient, const float* residual, const float* q,
                  float* p);
  void (*encode)(const FactoredMatrix& matrix, int64_t first, int64_t last,
                 const T* gradient, const float* residual_in,
                 float* residual_out, const float* p, float* q);
  void (*multiply)(const FactoredMatrix& matrix, int64_t first, int64_t last,
                   const float* p, const float* q, T* product);
};

template <typename T>
const FactorFunctions<T>& ScalarFactorFunctions();

// Defined where TF_GC_X86_64.
template <typename T>
const FactorFunctions<T>& Avx2FactorFunctions();
template <typename T>
const FactorFunctions<T>& Avx512FactorFunctions();
// Defined where TF_GC_NEON.
template <typename T>
const FactorFunctions<T>& NeonFactorFunctions();

}  // namespace tf_gc
