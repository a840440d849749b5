// The ops EncodeRows and DecodeRows on GPUs. The host finds which rows there
// are, since it allocates memory for them. So an op waits for its device, once:
// for the sorted indices, or for the messages.

#include <numeric>
#include <vector>

#include "cuda_runtime_api.h"
#include "custom_ops/kernels/gpu_device.h"
#include "custom_ops/kernels/residual_lock.h"
#include "custom_ops/kernels/rows_kernels.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/cuda/rows.h"
#include "custom_ops/lib/rows/rows.h"
#include "custom_ops/lib/wire/rows_wire.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {
namespace {

class GpuRows {
 public:
  explicit GpuRows(OpKernelContext* context)
      : context_(context), stream_(GpuDevice::StreamOf(context)) {}
  // After an error a copy to memory that ends here may be under way.
  ~GpuRows() {
    if (!context_->status().ok()) cudaStreamSynchronize(stream_);
  }

  absl::Status Find(const OpInputList& indices,
                    const std::vector<int64_t>& table_rows,
                    std::vector<Occurrences>* rows) {
    std::vector<int64_t*> on_host(indices.size());
    positions_.resize(indices.size());
    for (int i = 0; i < indices.size(); ++i) {
      const int64_t count = indices[i].NumElements();
      if (count == 0) continue;
      uint8_t* scratch = nullptr;
      size_t scratch_bytes = 0;
      int64_t* sorted = nullptr;
      uint32_t* unsorted = nullptr;
      TF_RETURN_IF_ERROR(Allocate(count, false, &sorted));
      TF_RETURN_IF_ERROR(Allocate(count, false, &positions_[i]));
      std::vector<uint32_t> numbers(count);
      std::iota(numbers.begin(), numbers.end(), 0);
      TF_RETURN_IF_ERROR(Upload(numbers, &unsorted));
      const auto sort = [&] {
        return GpuDevice::Launched(gpu::SortIndices(
            Data<int64_t>(indices[i]), unsorted, count, table_rows[i], scratch,
            &scratch_bytes, sorted, positions_[i], stream_));
      };
      TF_RETURN_IF_ERROR(sort());
      TF_RETURN_IF_ERROR(Allocate(scratch_bytes, false, &scratch));
      TF_RETURN_IF_ERROR(sort());
      TF_RETURN_IF_ERROR(Allocate(count, true, &on_host[i]));
      TF_RETURN_IF_ERROR(Copy(sorted, on_host[i], count * sizeof(*sorted)));
    }
    TF_RETURN_IF_ERROR(GpuDevice::Launched(cudaStreamSynchronize(stream_)));
    for (int i = 0; i < indices.size(); ++i) {
      rows->push_back(
          OccurrencesOfSorted(on_host[i], indices[i].NumElements()));
    }
    return absl::OkStatus();
  }

  absl::Status Fetch(const OpInputList& messages,
                     std::vector<const uint8_t*>* on_host) {
    for (const Tensor& tensor : messages) {
      uint8_t* copy = nullptr;
      const auto bytes = static_cast<int64_t>(tensor.TotalBytes());
      TF_RETURN_IF_ERROR(Allocate(bytes, true, &copy));
      TF_RETURN_IF_ERROR(Copy(tensor.data(), copy, bytes));
      on_host->push_back(copy);
    }
    return GpuDevice::Launched(cudaStreamSynchronize(stream_));
  }

  // From and to any memory. What is not pinned has been read when it returns.
  absl::Status Copy(const void* from, void* to, int64_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    return GpuDevice::Launched(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }

  template <typename T>
  absl::Status Encode(const RowsFormat& format, const RowLayout& layout,
                      const RowsSection& section, int table,
                      const Occurrences& rows, const Tensor& values,
                      const ResidualLock::Buffers& residual, uint8_t* to) {
    const SectionLayout places = LayoutOfSection(layout, section);
    std::vector<uint8_t> frame(places.end);
    WriteSectionFrame(layout, section, rows.indices, frame.data());
    TF_RETURN_IF_ERROR(Copy(frame.data(), to, places.end));
    int64_t* indices = nullptr;
    int64_t* starts = nullptr;
    TF_RETURN_IF_ERROR(Upload(rows.indices, &indices));
    TF_RETURN_IF_ERROR(Upload(rows.starts, &starts));
    auto* const scales = reinterpret_cast<uint16_t*>(to + places.scales);
    return GpuDevice::Launched(gpu::EncodeRows(
        format, layout, DTypeOf<LibType<T>>(),
        {indices, starts, positions_[table], values.data(), residual.dtype,
         residual.after, scales, to + places.codes},
        section.rows, stream_));
  }

  template <typename T>
  absl::Status Decode(const RowsFormat& format, const RowLayout& layout,
                      const MergedRows& rows, Tensor* values) {
    int64_t* starts = nullptr;
    RowSource* sources = nullptr;
    TF_RETURN_IF_ERROR(Upload(rows.starts, &starts));
    TF_RETURN_IF_ERROR(Upload(rows.sources, &sources));
    return GpuDevice::Launched(
        gpu::DecodeRows(format, layout, DTypeOf<LibType<T>>(), starts, sources,
                        values->dim_size(0), values->data(), stream_));
  }

 private:
  // Gives memory for `count` items that lasts as long as this object. On the
  // host it is pinned, and must not be freed while the device writes there.
  template <typename Item>
  absl::Status Allocate(int64_t count, bool on_host, Item** memory) {
    tensorflow::AllocatorAttributes attributes;
    attributes.set_on_host(on_host);
    attributes.set_gpu_compatible(on_host);
    Tensor tensor;
    TF_RETURN_IF_ERROR(context_->allocate_temp(
        tensorflow::DT_UINT8,
        TensorShape({count * static_cast<int64_t>(sizeof(Item))}), &tensor,
        attributes));
    *memory = static_cast<Item*>(tensor.data());
    kept_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  template <typename Item>
  absl::Status Upload(const std::vector<Item>& items, Item** memory) {
    const auto count = static_cast<int64_t>(items.size());
    TF_RETURN_IF_ERROR(Allocate(count, false, memory));
    return Copy(items.data(), *memory, count * sizeof(Item));
  }

  OpKernelContext* context_;
  CUstream_st* stream_;
  std::vector<Tensor> kept_;
  std::vector<uint32_t*> positions_;  // of each table
};

TF_GC_REGISTER_ROWS(tensorflow::DEVICE_GPU, GpuRows);

}  // namespace
}  // namespace tf_gc
