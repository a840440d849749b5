// Rows of tables (wire/rows_wire.h), on GPUs. As codec.h for blocks: sums,
// codes and residuals are the CPU's bits, functions enqueue kernels on `stream`
// and return a cudaError_t, and arrays are the current device's.
//
// Which rows there are and where they go in a message is for the host to find,
// as rows/rows.h does: it allocates memory for them.

#pragma once

#include <cstddef>
#include <cstdint>

#include "custom_ops/lib/numbers/floats.h"
#include "custom_ops/lib/wire/rows_wire.h"

struct CUstream_st;

namespace tf_gc::gpu {

// The functions below return cudaErrorInvalidValue for 2^30 indices or parts of
// rows, or more, and for what is no format.

// Sorts `count` numbers of rows of a table with `rows` rows, and their
// positions (0, 1, ...) with them: those of one row stay in their order. Where
// an index goes that the table does not have is not defined. With `scratch`
// null it only says how many bytes of that are needed.
int SortIndices(const int64_t* indices, const uint32_t* positions,
                int64_t count, int64_t rows, void* scratch,
                size_t* scratch_bytes, int64_t* sorted_indices,
                uint32_t* sorted_positions, CUstream_st* stream);

// The arguments of EncodeRows() of rows/rows.h, of which `indices`, `starts`
// and `positions` are the members of Occurrences. Residuals are changed in
// place. A NaN in a row without a codec may have other bits than the CPU's.
struct RowsToEncode {
  const int64_t* indices;
  const int64_t* starts;
  const uint32_t* positions;
  const void* values;
  DType residual_dtype;
  void* residual;
  uint16_t* scales;  // of the section
  uint8_t* codes;
};
int EncodeRows(const RowsFormat& format, const RowLayout& layout, DType dtype,
               const RowsToEncode& rows, int64_t count, CUstream_st* stream);

// Writes the sums of `count` rows. `starts` and `sources` are the members of
// MergedRows of rows/rows.h.
int DecodeRows(const RowsFormat& format, const RowLayout& layout, DType dtype,
               const int64_t* starts, const RowSource* sources, int64_t count,
               void* values, CUstream_st* stream);

}  // namespace tf_gc::gpu
