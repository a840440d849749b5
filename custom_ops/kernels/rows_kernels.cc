// The ops EncodeRows and DecodeRows on the CPU: share the rows among
// TensorFlow's threads.

#include "custom_ops/kernels/rows_kernels.h"

#include <cstring>
#include <vector>

#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/rows/rows.h"
#include "custom_ops/lib/wire/rows_wire.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {
namespace {

// Nanoseconds for an element of a row of a replica, on one core.
constexpr int64_t kRowElementCost = 1;

class CpuRows {
 public:
  explicit CpuRows(OpKernelContext* context) : context_(context) {}

  absl::Status Find(const OpInputList& indices, const std::vector<int64_t>&,
                    std::vector<Occurrences>* rows) {
    for (const Tensor& of_table : indices) {
      rows->push_back(
          OccurrencesOf(Data<int64_t>(of_table), of_table.NumElements()));
    }
    return absl::OkStatus();
  }

  absl::Status Fetch(const OpInputList& messages,
                     std::vector<const uint8_t*>* on_host) {
    for (const Tensor& tensor : messages) {
      on_host->push_back(static_cast<const uint8_t*>(tensor.data()));
    }
    return absl::OkStatus();
  }

  absl::Status Copy(const void* from, void* to, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Encode(const RowsFormat& format, const RowLayout& layout,
                      const RowsSection& section, int, const Occurrences& rows,
                      const Tensor& values,
                      const ResidualLock::Buffers& residual, uint8_t* to) {
    WriteSectionFrame(layout, section, rows.indices, to);
    InThreads(context_, section.rows, layout.columns() * kRowElementCost,
              [&](int64_t first, int64_t last) {
                EncodeRows(format, layout, section, rows, first, last,
                           Data<T>(values), residual.dtype, residual.after,
                           residual.after, to);
              });
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Decode(const RowsFormat& format, const RowLayout& layout,
                      const MergedRows& rows, Tensor* values) {
    InThreads(context_, values->dim_size(0), layout.columns() * kRowElementCost,
              [&](int64_t first, int64_t last) {
                DecodeRows(format, layout, rows, first, last,
                           MutableData<T>(values));
              });
    return absl::OkStatus();
  }

 private:
  OpKernelContext* context_;
};

TF_GC_REGISTER_ROWS(tensorflow::DEVICE_CPU, CpuRows);

}  // namespace
}  // namespace tf_gc
