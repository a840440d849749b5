// CUB's sort, on the CPU: equal keys stay in their order.

#pragma once

#include <map>
#include <utility>

#include "cuda_runtime.h"

namespace cub::DeviceRadixSort {

template <typename Key, typename Value>
cudaError_t SortPairs(void* scratch, size_t& bytes, const Key* keys,
                      Key* sorted_keys, const Value* values,
                      Value* sorted_values, int count, int, int end_bit,
                      cudaStream_t) {
  bytes = 1;
  std::multimap<Key, std::pair<Key, Value>> sorted;
  for (int i = 0; i < count && scratch != nullptr; ++i) {
    const Key compared = keys[i] & ((Key{1} << end_bit) - 1);
    sorted.insert({compared, {keys[i], values[i]}});
  }
  for (const auto& [_, pair] : sorted) {
    *sorted_keys++ = pair.first;
    *sorted_values++ = pair.second;
  }
  return cudaSuccess;
}

}  // namespace cub::DeviceRadixSort
