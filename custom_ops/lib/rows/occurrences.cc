// Sorting: which rows a replica sends, and which rows a sum has.

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "custom_ops/lib/rows/rows.h"

namespace tf_gc {
namespace {

struct Occurrence {
  int64_t index;
  int64_t position;
};

// Sorts by `index`, and leaves occurrences of one index in their order: by one
// byte after the other, from the lowest on.
void SortByIndex(std::vector<Occurrence>* all) {
  int64_t largest = 0;
  for (const Occurrence& each : *all) largest = std::max(largest, each.index);
  std::vector<Occurrence> sorted(all->size());
  for (int shift = 0; shift < 64 && largest >> shift != 0; shift += 8) {
    std::array<int64_t, 257> starts = {};
    for (const Occurrence& each : *all)
      ++starts[(each.index >> shift & 255) + 1];
    for (int i = 0; i < 256; ++i) starts[i + 1] += starts[i];
    for (const Occurrence& each : *all) {
      sorted[starts[each.index >> shift & 255]++] = each;
    }
    all->swap(sorted);
  }
}

// Notes that number `i` of what is sorted has this index.
template <typename Rows>
void Note(int64_t index, int64_t i, Rows* rows) {
  if (i > 0 && index == rows->indices.back()) return;
  rows->indices.push_back(index);
  rows->starts.push_back(i);
}

}  // namespace

Occurrences OccurrencesOf(const int64_t* indices, int64_t count) {
  std::vector<Occurrence> all(count);
  for (int64_t i = 0; i < count; ++i) all[i] = {indices[i], i};
  SortByIndex(&all);
  Occurrences result;
  result.positions.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    Note(all[i].index, i, &result);
    result.positions.push_back(all[i].position);
  }
  result.starts.push_back(count);
  return result;
}

Occurrences OccurrencesOfSorted(const int64_t* indices, int64_t count) {
  Occurrences result;
  for (int64_t i = 0; i < count; ++i) Note(indices[i], i, &result);
  result.starts.push_back(count);
  return result;
}

MergedRows MergeRows(const RowLayout& layout,
                     const std::vector<const ReceivedRows*>& replicas) {
  std::vector<Occurrence> all;  // `position` is the number of the replica
  for (size_t r = 0; r < replicas.size(); ++r) {
    for (int64_t index : replicas[r]->indices) {
      all.push_back({index, static_cast<int64_t>(r)});
    }
  }
  SortByIndex(&all);
  std::vector<int64_t> next(replicas.size());  // row of each replica
  MergedRows result;
  result.sources.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    Note(all[i].index, static_cast<int64_t>(i), &result);
    const ReceivedRows& from = *replicas[all[i].position];
    const int64_t row = next[all[i].position]++;
    result.sources.push_back(
        {reinterpret_cast<const uint16_t*>(from.section + from.layout.scales) +
             row * layout.scales(),
         from.section + from.layout.codes + row * layout.bytes()});
  }
  result.starts.push_back(static_cast<int64_t>(all.size()));
  return result;
}

}  // namespace tf_gc
