// Sums of rows in float32. Callers set the floating-point mode; these functions
// are in a file of their own, so that no compiler moves an addition across that
// change. Internal to the library.

#ifndef TF_GC_CUSTOM_OPS_LIB_ROWS_SUMS_H_
#define TF_GC_CUSTOM_OPS_LIB_ROWS_SUMS_H_

#include <cstdint>

namespace tf_gc {

// Writes the sum of the rows of `values` at `count` >= 1 positions, in parts of
// `part_size` elements, each of which begins a block.
template <typename T>
void SumOccurrences(const T* values, int64_t columns, int64_t part_size,
                    const int64_t* positions, int64_t count, float* sum);

// Writes the sum of `count` >= 1 rows of float32, rounded once.
template <typename T>
void SumExactRows(const uint8_t* const* rows, int64_t count, int64_t columns,
                  T* sum);

}  // namespace tf_gc

#endif  // TF_GC_CUSTOM_OPS_LIB_ROWS_SUMS_H_
