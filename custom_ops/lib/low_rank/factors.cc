// Chooses the instruction set; makes columns orthonormal.

#include "custom_ops/lib/low_rank/factors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/cpu/float_mode.h"
#include "custom_ops/lib/cpu/functions.h"

namespace tf_gc {
namespace {

// Taking the parts along other columns out of a column leaves only rounding if
// less than this part of its norm is left.
constexpr double kIndependent = 1e-6;

// The sum of a[i] * b[i], in float64 and in one order.
double Dot(int64_t n, const double* a, const double* b) {
  constexpr int kParts = 4;
  double sums[kParts] = {};
  for (int64_t i = 0; i < n; ++i) sums[i % kParts] += a[i] * b[i];
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// Takes the parts along `count` orthonormal columns out of another one, and
// makes its norm 1. Returns false if nothing but rounding was left.
bool MakeIndependent(int64_t n, int count, const double* columns,
                     double* column) {
  const double size = std::sqrt(Dot(n, column, column));
  // The second round takes out the parts that the first one leaves.
  for (int round = 0; round < 2; ++round) {
    for (int k = 0; k < count; ++k) {
      const double part = Dot(n, columns + k * n, column);
      for (int64_t i = 0; i < n; ++i) column[i] -= part * columns[k * n + i];
    }
  }
  const double norm = std::sqrt(Dot(n, column, column));
  if (!(norm > kIndependent * size)) return false;
  for (int64_t i = 0; i < n; ++i) column[i] /= norm;
  return true;
}

// A number in [-1, 1) that looks random, and is the same everywhere.
double Noise(int64_t index) {
  uint32_t x = static_cast<uint32_t>(index + 1) * 2654435769u;
  x ^= x >> 16;
  x *= 2246822519u;
  x ^= x >> 13;
  return (static_cast<double>(x) - 0x1p31) / 0x1p31;
}

}  // namespace

template <typename T>
void ProjectMatrix(const FactoredMatrix& matrix, int64_t first, int64_t last,
                   const T* gradient, const float* residual, const float* q,
                   float* p) {
  const ScopedExactFloatMode mode;
  TF_GC_ACTIVE(FactorFunctions<T>)().project(matrix, first, last, gradient,
                                             residual, q, p);
}

template <typename T>
void EncodeMatrix(const FactoredMatrix& matrix, int64_t first, int64_t last,
                  const T* gradient, const float* residual_in,
                  float* residual_out, const float* p, float* q) {
  const ScopedExactFloatMode mode;
  TF_GC_ACTIVE(FactorFunctions<T>)().encode(matrix, first, last, gradient,
                                            residual_in, residual_out, p, q);
}

template <typename T>
void MultiplyFactors(const FactoredMatrix& matrix, int64_t first, int64_t last,
                     const float* p, const float* q, T* product) {
  const ScopedExactFloatMode mode;
  TF_GC_ACTIVE(FactorFunctions<T>)().multiply(matrix, first, last, p, q,
                                              product);
}

void MakeOrthonormal(int64_t n, int rank, float* columns) {
  const ScopedExactFloatMode mode;
  std::vector<double> done(rank * n);
  for (int k = 0; k < rank; ++k) {
    double* const column = done.data() + k * n;
    std::copy_n(columns + k * n, n, column);
    if (MakeIndependent(n, k, done.data(), column)) continue;
    for (int64_t i = 0; i < n; ++i) column[i] = Noise(k * n + i);
    if (!MakeIndependent(n, k, done.data(), column)) {
      std::fill_n(column, n, 0.0);
    }
  }
  for (int64_t i = 0; i < rank * n; ++i) {
    columns[i] = static_cast<float>(done[i]);
  }
}

#define TF_GC_INSTANTIATE(T)                                                 \
  template void ProjectMatrix(const FactoredMatrix&, int64_t, int64_t,       \
                              const T*, const float*, const float*, float*); \
  template void EncodeMatrix(const FactoredMatrix&, int64_t, int64_t,        \
                             const T*, const float*, float*, const float*,   \
                             float*);                                        \
  template void MultiplyFactors(const FactoredMatrix&, int64_t, int64_t,     \
                                const float*, const float*, T*)

TF_GC_INSTANTIATE(float);
TF_GC_INSTANTIATE(Half);
TF_GC_INSTANTIATE(BFloat16);
#undef TF_GC_INSTANTIATE

}  // namespace tf_gc
