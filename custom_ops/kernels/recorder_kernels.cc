// The ops that record what steps say of themselves. They run on the CPU, also
// where gradients are elsewhere.

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/message.h"
#include "custom_ops/kernels/tensors.h"
#include "custom_ops/lib/codec/sent.h"
#include "custom_ops/lib/recorder/recorder.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {
namespace {

// An op with the attributes `recorder` and `reduction`.
class RecorderOp : public OpKernel {
 public:
  explicit RecorderOp(OpKernelConstruction* context) : OpKernel(context) {
    int64_t number;
    OP_REQUIRES_OK(context, context->GetAttr("recorder", &number));
    OP_REQUIRES_OK(context, context->GetAttr("reduction", &reduction_));
    recorder_ = FindRecorder(number);
  }

 protected:
  std::shared_ptr<Recorder> recorder_;  // may be null
  int64_t reduction_;
};

class NoteStepOp : public RecorderOp {
 public:
  explicit NoteStepOp(OpKernelConstruction* context) : RecorderOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("compressed", &compressed_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* measure = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &measure));
    const std::chrono::nanoseconds now =
        std::chrono::steady_clock::now().time_since_epoch();
    measure->scalar<bool>()() =
        recorder_ != nullptr &&
        recorder_->Note(reduction_, compressed_, now.count());
  }

  bool IsExpensive() override { return false; }

 private:
  bool compressed_;
};

class TrialTimesOp : public RecorderOp {
 public:
  explicit TrialTimesOp(OpKernelConstruction* context) : RecorderOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("latest", &latest_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* times = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {2}, &times));
    for (const bool compressed : {false, true}) {
      times->flat<int64_t>()(compressed) =
          recorder_ == nullptr
              ? Recorder::kNeverTried
              : recorder_->Median(reduction_, compressed, latest_);
    }
  }

 private:
  int64_t latest_;
};

class KeepOp : public RecorderOp {
 public:
  explicit KeepOp(OpKernelConstruction* context) : RecorderOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("of_trial", &of_trial_));
  }

  void Compute(OpKernelContext* context) override {
    if (recorder_ == nullptr) return;
    const auto input = context->input(0).flat<double>();
    std::vector<double> values(input.data(), input.data() + input.size());
    if (of_trial_) {
      recorder_->KeepTrial(reduction_, std::move(values));
    } else {
      recorder_->Keep(reduction_, std::move(values));
    }
  }

 private:
  bool of_trial_;
};

class CountSentOp : public OpKernel {
 public:
  explicit CountSentOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadCodec(context, &codec_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& messages = context->input(0);
    MessageLayout layout;
    OP_REQUIRES_OK(context, ReadLayout(codec_, messages, &layout));
    Tensor* sent = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &sent));
    sent->scalar<int64_t>()() = SentInMessages(
        codec_, layout, static_cast<const uint8_t*>(messages.data()),
        messages.dim_size(0));
  }

 private:
  Codec codec_;
};

REGISTER_KERNEL_BUILDER(Name("TfGc>NoteStep").Device(tensorflow::DEVICE_CPU),
                        NoteStepOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>TrialTimes").Device(tensorflow::DEVICE_CPU),
                        TrialTimesOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>Keep").Device(tensorflow::DEVICE_CPU),
                        KeepOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>CountSent").Device(tensorflow::DEVICE_CPU),
                        CountSentOp);

}  // namespace
}  // namespace tf_gc
