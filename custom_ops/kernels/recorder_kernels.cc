// The ops that record what steps say of themselves. They run on the CPU, also
// where gradients are elsewhere.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/lib/codec/sent.h"
#include "custom_ops/lib/recorder/recorder.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

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
    bool compressed;
    OP_REQUIRES_OK(context, context->GetAttr("compressed", &compressed));
    kind_ = compressed ? StepKind::kCompressed : StepKind::kFullPrecision;
    OP_REQUIRES_OK(context, context->GetAttr("candidate", &candidate_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* measure = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &measure));
    const std::chrono::nanoseconds now =
        std::chrono::steady_clock::now().time_since_epoch();
    measure->scalar<bool>()() =
        recorder_ != nullptr &&
        recorder_->Note(reduction_, kind_, candidate_, now.count());
  }

  bool IsExpensive() override { return false; }

 private:
  StepKind kind_;
  int64_t candidate_;
};

class TrialTimesOp : public RecorderOp {
 public:
  explicit TrialTimesOp(OpKernelConstruction* context) : RecorderOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("candidates", &candidates_));
    OP_REQUIRES_OK(context, context->GetAttr("latest", &latest_));
  }

  void Compute(OpKernelContext* context) override {
    std::vector<int64_t> medians(static_cast<size_t>(candidates_),
                                 Recorder::kNeverTried);
    if (recorder_ != nullptr) {
      medians = recorder_->Medians(reduction_, candidates_, latest_);
    }
    Tensor* times = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {candidates_}, &times));
    std::copy(medians.begin(), medians.end(), times->flat<int64_t>().data());
  }

 private:
  int64_t candidates_;
  int64_t latest_;
};

class KeepTrialOp : public RecorderOp {
 public:
  using RecorderOp::RecorderOp;

  void Compute(OpKernelContext* context) override {
    const auto times = context->input(0).flat<int64_t>();
    const Tensor& chosen = context->input(1);
    OP_REQUIRES(
        context, chosen.NumElements() == 1,
        absl::InvalidArgumentError(absl::StrCat("chosen must be a scalar, got ",
                                                chosen.shape().DebugString())));
    if (recorder_ != nullptr) {
      recorder_->KeepTrial(reduction_,
                           {times.data(), times.data() + times.size()},
                           chosen.flat<int64_t>()(0));
    }
  }
};

class KeepMeasurementOp : public RecorderOp {
 public:
  using RecorderOp::RecorderOp;

  void Compute(OpKernelContext* context) override {
    const auto values = context->input(0).flat<double>();
    if (recorder_ != nullptr) {
      recorder_->Keep(reduction_, values.data(), values.size());
    }
  }
};

class CountSentOp : public OpKernel {
 public:
  explicit CountSentOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadCodec(context, &codec_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& messages = context->input(0);
    const int64_t blocks =
        messages.dims() == 2 ? BlocksOf(codec_, messages.dim_size(1)) : -1;
    OP_REQUIRES(
        context, blocks >= 0,
        absl::InvalidArgumentError(absl::StrCat(
            "messages must have the shape [rows, words], with the words of a "
            "message, got ",
            messages.shape().DebugString())));
    Tensor* sent = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &sent));
    const MessageLayout layout = LayoutOf(codec_, blocks);
    const uint8_t* row = static_cast<const uint8_t*>(messages.data());
    int64_t count = 0;
    for (int64_t i = 0; i < messages.dim_size(0); ++i, row += layout.size) {
      for (int64_t block = 0; block < blocks; ++block) {
        count += SentInBlock(codec_, layout.Codes(row, block));
      }
    }
    sent->scalar<int64_t>()() = count;
  }

 private:
  Codec codec_;
};

REGISTER_KERNEL_BUILDER(Name("TfGc>NoteStep").Device(tensorflow::DEVICE_CPU),
                        NoteStepOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>TrialTimes").Device(tensorflow::DEVICE_CPU),
                        TrialTimesOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>KeepTrial").Device(tensorflow::DEVICE_CPU),
                        KeepTrialOp);
REGISTER_KERNEL_BUILDER(
    Name("TfGc>KeepMeasurement").Device(tensorflow::DEVICE_CPU),
    KeepMeasurementOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>CountSent").Device(tensorflow::DEVICE_CPU),
                        CountSentOp);

}  // namespace
}  // namespace tf_gc
