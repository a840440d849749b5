// Messages of rows (wire/rows_wire.h), on the CPU. No TensorFlow here: pointers
// and counts.
//
// Results are the same bits for every Target, number of threads and split into
// ranges of rows.

#pragma once

#include <cstdint>
#include <vector>

#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/rows_wire.h"
#include "custom_ops/lib/wire/wire.h"

namespace tf_gc {

// Which positions of a list of indices have the same index.
struct Occurrences {
  std::vector<int64_t> indices;    // ascending, each once
  std::vector<int64_t> starts;     // of each index in `positions`; then the end
  std::vector<int64_t> positions;  // of an index in ascending order
};

// `indices` has `count` numbers from 0 on.
Occurrences OccurrencesOf(const int64_t* indices, int64_t count);

// The same of numbers that are sorted, without positions.
Occurrences OccurrencesOfSorted(const int64_t* indices, int64_t count);

// Where the parts of a table's section are, in bytes from its start.
struct SectionLayout {
  int64_t scales;
  int64_t codes;
  int64_t gaps;
  int64_t end;  // a multiple of 8
};
SectionLayout LayoutOfSection(const RowLayout& row, const RowsSection& section);

// The bytes that the varints of these indices take.
int64_t GapBytes(const std::vector<int64_t>& indices);

// Writes all of a section but its scales and codes.
void WriteSectionFrame(const RowLayout& row, const RowsSection& section,
                       const std::vector<int64_t>& indices, uint8_t* to);

// Encodes the rows [first, last) of `rows` into their section. The row of an
// index is the sum of its occurrences in `values`, rows of `columns` elements,
// added in float32 in their order.
//
// `residual_in` and `residual_out` are the whole table's, the same array or
// two; a row in `residual_out` becomes what was not sent of gradient plus
// residual. Both are null where nothing is kept, with DType::kFloat.
template <typename T>
void EncodeRows(const RowsFormat& format, const RowLayout& layout,
                const RowsSection& section, const Occurrences& rows,
                int64_t first, int64_t last, const T* values,
                DType residual_dtype, const void* residual_in,
                void* residual_out, uint8_t* to);

// A table's section of a message that arrived.
struct ReceivedRows {
  const uint8_t* section;
  SectionLayout layout;
  std::vector<int64_t> indices;
};

// Reads the sections of a message of `size` bytes for tables of `layouts` with
// `table_rows` rows. False if it is no message of that format and these tables,
// or is cut off.
bool ReadRows(const RowsFormat& format, const std::vector<RowLayout>& layouts,
              const std::vector<int64_t>& table_rows, const uint8_t* message,
              int64_t size, std::vector<ReceivedRows>* sections);

// Which rows of which replicas make up the rows of their sum.
struct MergedRows {
  std::vector<int64_t> indices;    // ascending, each once
  std::vector<int64_t> starts;     // of each index in `sources`; then the end
  std::vector<RowSource> sources;  // of an index in the order of the replicas
};
MergedRows MergeRows(const RowLayout& layout,
                     const std::vector<const ReceivedRows*>& replicas);

// Decodes the rows [first, last) of a sum into `values`, which has all rows.
// Adds in float32, replica after replica and layer after layer, and rounds
// once.
template <typename T>
void DecodeRows(const RowsFormat& format, const RowLayout& layout,
                const MergedRows& rows, int64_t first, int64_t last, T* values);

// Internal to the library: sums in float32. Callers set the floating-point
// mode; these functions are in a file of their own, so that no compiler moves
// an addition across that change.

// Writes the sum of the rows of `values` at `count` >= 1 positions, in parts of
// `part_size` elements, each of which begins a block.
template <typename T>
void SumOccurrences(const T* values, int64_t columns, int64_t part_size,
                    const int64_t* positions, int64_t count, float* sum);

// Writes the sum of `count` >= 1 rows of float32, rounded once.
template <typename T>
void SumExactRows(const RowSource* rows, int64_t count, int64_t columns,
                  T* sum);

}  // namespace tf_gc
