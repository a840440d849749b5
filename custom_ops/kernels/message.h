// The frame of a message: which codec a kernel has, where messages are,
// writing the header and the padding, checking those that arrive.

#pragma once

#include <cstdint>
#include <vector>

#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/wire/wire.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

struct MessageFormat {
  Codec codec;
  // 0 for automatic codecs. For counts, what a count of 1 stands for.
  float threshold;

  MessageLayout Layout(int64_t blocks) const { return LayoutOf(codec, blocks); }

  // Writes the header and everything that is no code and no scale of the first
  // `used` blocks.
  void WriteFrame(const MessageLayout& layout, int64_t used,
                  uint8_t* message) const;

  // InvalidArgument if a row's header is not the one that WriteFrame() writes.
  absl::Status CheckHeaders(const std::vector<const uint8_t*>& rows,
                            const MessageLayout& layout) const;
};

// Reads the attributes `codec`, `automatic` and `threshold`. InvalidArgument if
// the codec does not take the threshold.
absl::Status ReadFormat(OpKernelConstruction* context, MessageFormat* format);

// Reads the attributes `codec` and `threshold` of a codec that is fixed.
absl::Status ReadFixedFormat(OpKernelConstruction* context,
                             MessageFormat* format);

// The start of each row, of `row_bytes` bytes, of a matrix.
std::vector<const uint8_t*> RowsOf(const Tensor& matrix, int64_t row_bytes);

// The layout of the messages that are the rows of a tensor. InvalidArgument if
// it is no matrix, or no message of the codec is as long as its rows.
absl::Status ReadLayout(Codec codec, const Tensor& messages,
                        MessageLayout* layout);

// Finds the rows of all tensors of the input list `messages`. InvalidArgument
// if a tensor's shape is not [rows, layout.words()].
absl::Status FindMessages(const OpInputList& messages,
                          const MessageLayout& layout,
                          std::vector<const uint8_t*>* rows);

// InvalidArgument if there are not as many rows as the attribute `name` says.
absl::Status CheckRows(const std::vector<const uint8_t*>& rows,
                       const char* name, int64_t expected);

// Reads the attribute `replicas` and gives the format of the counts of as many
// messages. `fixed` is of a fixed codec. InvalidArgument if the replicas are
// too many.
absl::Status ReadCountsFormat(OpKernelConstruction* context,
                              const MessageFormat& fixed,
                              MessageFormat* counts);

}  // namespace tf_gc
