// Sums of rows in float32.

#include <cstdint>
#include <cstring>

#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/rows/rows.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

template <typename T>
void SumOccurrences(const T* values, int64_t columns, int64_t part_size,
                    const int64_t* positions, int64_t count, float* sum) {
  for (int64_t start = 0; start < columns;
       start += part_size, sum += kBlockSize) {
    const int64_t rest = columns - start;
    const int64_t size = rest < part_size ? rest : part_size;
    const T* first = values + positions[0] * columns + start;
    for (int64_t j = 0; j < size; ++j) sum[j] = ToFloat(first[j]);
    for (int64_t i = 1; i < count; ++i) {
      const T* next = values + positions[i] * columns + start;
      for (int64_t j = 0; j < size; ++j) sum[j] += ToFloat(next[j]);
    }
  }
}

template <typename T>
void SumExactRows(const RowSource* rows, int64_t count, int64_t columns,
                  T* sum) {
  for (int64_t j = 0; j < columns; ++j) {
    float total;
    std::memcpy(&total, rows[0].codes + j * sizeof(float), sizeof(float));
    for (int64_t i = 1; i < count; ++i) {
      float next;
      std::memcpy(&next, rows[i].codes + j * sizeof(float), sizeof(float));
      total += next;
    }
    RoundTo(total, sum + j);
  }
}

#define TF_GC_INSTANTIATE(T)                                                  \
  template void SumOccurrences<T>(const T*, int64_t, int64_t, const int64_t*, \
                                  int64_t, float*);                           \
  template void SumExactRows<T>(const RowSource*, int64_t, int64_t, T*)

TF_GC_INSTANTIATE(float);
TF_GC_INSTANTIATE(Half);
TF_GC_INSTANTIATE(BFloat16);
#undef TF_GC_INSTANTIATE

}  // namespace tf_gc
