// The ops Pack and Unpack on the CPU: validate, allocate, share the work among
// TensorFlow's threads, call the library.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {
namespace {

// Nanoseconds for a byte of a message on one core.
constexpr int64_t kByteCost = 1;

absl::Status ReadCompactFormat(OpKernelConstruction* context,
                               MessageFormat* format) {
  TF_RETURN_IF_ERROR(ReadFormat(context, format));
  return CheckCompactible(format->codec);
}

absl::Status ReadPeriods(OpKernelConstruction* context, Periods* periods) {
  std::vector<int64_t> values;
  TF_RETURN_IF_ERROR(context->GetAttr("periods", &values));
  if (!ArePeriods(values.data(), static_cast<int64_t>(values.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "periods must be at most ", kMostPeriods, " numbers from 1 to ",
        kSegmentBlocks, ", got [", absl::StrJoin(values, ", "), "]"));
  }
  periods->count = static_cast<int>(values.size());
  std::transform(values.begin(), values.end(), periods->values,
                 [](int64_t value) { return static_cast<int32_t>(value); });
  return absl::OkStatus();
}

// Calls work(row, run) for each row, in the threads of the device. With few
// rows the threads share the tasks of each one: Shard() within Shard() could
// wait for ever.
template <typename Work>
void ForRows(OpKernelContext* context, int64_t rows, int64_t row_bytes,
             Work work) {
  const auto& pool = *context->device()->tensorflow_cpu_worker_threads();
  const int64_t row_cost = std::max<int64_t>(1, row_bytes * kByteCost);
  if (rows >= pool.num_threads) {
    const RunTasks run = [](int64_t tasks, const auto& task) {
      for (int64_t i = 0; i < tasks; ++i) task(i);
    };
    InThreads(context, rows, row_cost, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) work(i, run);
    });
    return;
  }
  const RunTasks run = [&](int64_t tasks, const auto& task) {
    if (tasks == 0) return;
    InThreads(context, tasks, std::max<int64_t>(1, row_cost / tasks),
              [&](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; ++i) task(i);
              });
  };
  for (int64_t i = 0; i < rows; ++i) work(i, run);
}

class PackOp : public OpKernel {
 public:
  explicit PackOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadCompactFormat(context, &format_));
    OP_REQUIRES_OK(context, ReadPeriods(context, &periods_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& messages = context->input(0);
    MessageLayout layout;
    OP_REQUIRES_OK(context, ReadLayout(format_.codec, messages, &layout));
    const std::vector<const uint8_t*> rows = RowsOf(messages, layout.size);
    OP_REQUIRES_OK(context, format_.CheckHeaders(rows, layout));

    Tensor* compact = nullptr;
    Tensor* lengths = nullptr;
    const int64_t capacity = PackCapacity(format_.codec, layout);
    OP_REQUIRES_OK(
        context,
        context->allocate_output(
            0, TensorShape({messages.dim_size(0), capacity / kWordBytes}),
            &compact));
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       1, TensorShape({messages.dim_size(0)}), &lengths));
    uint8_t* to = static_cast<uint8_t*>(compact->data());
    int64_t* words = lengths->flat<int64_t>().data();
    ForRows(context, messages.dim_size(0), layout.size,
            [&](int64_t row, const RunTasks& run) {
              uint8_t* mine = to + row * capacity;
              const int64_t size =
                  Pack(format_.codec, layout, periods_, rows[row], mine, run);
              std::memset(mine + size, 0, capacity - size);
              words[row] = size / kWordBytes;
            });
  }

 private:
  MessageFormat format_;
  Periods periods_;
};

class UnpackOp : public OpKernel {
 public:
  explicit UnpackOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadCompactFormat(context, &format_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& compact = context->input(0);
    const Tensor& words = context->input(1);
    OP_REQUIRES(context, compact.dims() == 2,
                absl::InvalidArgumentError(absl::StrCat(
                    "compact messages must have the shape [rows, n], got ",
                    compact.shape().DebugString())));
    OP_REQUIRES(
        context, words.dims() == 0,
        absl::InvalidArgumentError(absl::StrCat("words must be a scalar, got ",
                                                words.shape().DebugString())));
    int64_t blocks;
    OP_REQUIRES_OK(
        context, ReadBlocks(format_.codec, words.scalar<int64_t>()(), &blocks));
    const MessageLayout layout = format_.Layout(blocks);
    TensorShape shape;
    OP_REQUIRES_OK(context, TensorShape::BuildTensorShape(
                                {compact.dim_size(0), layout.words()}, &shape));
    Tensor* messages = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &messages));

    // A tensor without rows may be wider than any number of bytes.
    const int64_t size =
        compact.TotalBytes() / std::max<int64_t>(1, compact.dim_size(0));
    const std::vector<const uint8_t*> rows = RowsOf(compact, size);
    uint8_t* to = static_cast<uint8_t*>(messages->data());
    constexpr int64_t kNone = -1;
    std::atomic<int64_t> broken{kNone};
    ForRows(context, compact.dim_size(0), layout.size,
            [&](int64_t row, const RunTasks& run) {
              if (!Unpack(format_.codec, layout, rows[row], size,
                          to + row * layout.size, run)) {
                broken = row;
              }
            });
    OP_REQUIRES(context, broken == kNone,
                absl::InvalidArgumentError(absl::StrCat(
                    "row ", broken.load(), " of ", size,
                    " bytes is no compact message of codec ",
                    NameOf(format_.codec), " with ", layout.blocks,
                    " blocks: a part is missing, or bytes have changed")));
    OP_REQUIRES_OK(
        context, format_.CheckHeaders(RowsOf(*messages, layout.size), layout));
  }

 private:
  MessageFormat format_;
};

REGISTER_KERNEL_BUILDER(Name("TfGc>Pack").Device(tensorflow::DEVICE_CPU),
                        PackOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>Unpack").Device(tensorflow::DEVICE_CPU),
                        UnpackOp);

}  // namespace
}  // namespace tf_gc
