// The ops that limit the time of a collective.
//
// TensorFlow's own limit, the attribute `timeout_seconds` of a collective, ends
// the op while the ring of its group still uses the op's memory, and a message
// that comes late is then written to memory that is free: the process ends by a
// signal. To abort the executor of the collectives ends the ring, and the ring
// ends the op.

#include <cmath>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/deadlines/deadlines.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {
namespace {

using ::tensorflow::CancellationManager;
using ::tensorflow::CollectiveExecutor;

class BeginDeadlineOp : public OpKernel {
 public:
  explicit BeginDeadlineOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("seconds", &seconds_));
    OP_REQUIRES(context, std::isfinite(seconds_) && seconds_ > 0,
                absl::InvalidArgumentError(
                    absl::StrCat("seconds must be positive, got ", seconds_)));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* deadline = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {2}, &deadline));
    CollectiveExecutor* executor = context->collective_executor();
    CancellationManager* step = context->cancellation_manager();
    OP_REQUIRES(context, executor != nullptr && step != nullptr,
                absl::FailedPreconditionError(
                    "a deadline needs a step that runs collectives"));
    executor->Ref();
    const std::shared_ptr<CollectiveExecutor> owned(
        executor, [](CollectiveExecutor* each) { each->Unref(); });
    const int64_t number =
        Deadlines::Get().Begin(seconds_, [owned, seconds = seconds_] {
          owned->StartAbort(absl::DeadlineExceededError(
              absl::StrCat("a collective took longer than ", seconds,
                           " seconds (timeout_seconds of "
                           "communication_options): a worker hangs, or "
                           "the network is slow")));
        });
    const auto token = step->get_cancellation_token();
    if (!step->RegisterCallback(token,
                                [number] { Deadlines::Get().End(number); })) {
      Deadlines::Get().End(number);
    }
    deadline->flat<int64_t>()(0) = number;
    deadline->flat<int64_t>()(1) = token;
  }

  bool IsExpensive() override { return false; }

 private:
  float seconds_;
};

class EndDeadlineOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& deadline = context->input(0);
    OP_REQUIRES(context, deadline.NumElements() == 2,
                absl::InvalidArgumentError(absl::StrCat(
                    "deadline must come from BeginDeadline, of shape [2], got ",
                    deadline.shape().DebugString())));
    Deadlines::Get().End(deadline.flat<int64_t>()(0));
    if (context->cancellation_manager() != nullptr) {
      context->cancellation_manager()->TryDeregisterCallback(
          deadline.flat<int64_t>()(1));
    }
  }

  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(
    Name("TfGc>BeginDeadline").Device(tensorflow::DEVICE_CPU), BeginDeadlineOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>EndDeadline").Device(tensorflow::DEVICE_CPU),
                        EndDeadlineOp);
// They compute nothing, but stand beside a collective, whose token is there.
REGISTER_KERNEL_BUILDER(Name("TfGc>BeginDeadline")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("tokens")
                            .HostMemory("deadline"),
                        BeginDeadlineOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>EndDeadline")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("deadline")
                            .HostMemory("tokens"),
                        EndDeadlineOp);

}  // namespace
}  // namespace tf_gc
