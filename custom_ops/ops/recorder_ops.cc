// Interface of the ops that record what steps say of themselves.

#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::NoOutputs;
using ::tensorflow::shape_inference::ScalarShape;

REGISTER_OP("TfGc>NoteStep")
    .Output("measure: bool")
    .Attr("recorder: int")
    .Attr("reduction: int")
    .Attr("compressed: bool")
    .Attr("candidate: int = -1")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Notes the time at which a step sums gradients.

measure: Whether this step is one of those to be measured.
recorder: The number of a recorder. If this process has none of that number, the
  op does nothing.
reduction: Which of the recorder's models the gradients belong to.
compressed: Whether the step compresses, or sums in full precision.
candidate: Where there are several ways to sum gradients, the number of the one
  that the step takes.
)doc");

REGISTER_OP("TfGc>TrialTimes")
    .Output("times: int64")
    .Attr("recorder: int")
    .Attr("reduction: int")
    .Attr("candidates: int >= 1")
    .Attr("latest: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      int64_t candidates;
      TF_RETURN_IF_ERROR(context->GetAttr("candidates", &candidates));
      context->set_output(0, context->Vector(candidates));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns how long a step takes with each candidate.

times: [candidates], in nanoseconds: the median of the times from a step to the
  next one where both are of the candidate; the largest int64 if there are none.
recorder: As in NoteStep.
reduction: As in NoteStep.
candidates: How many candidates there are, from number 0 on.
latest: How many of a candidate's latest times count.
)doc");

REGISTER_OP("TfGc>KeepTrial")
    .Input("times: int64")
    .Input("chosen: int64")
    .Attr("recorder: int")
    .Attr("reduction: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Keeps how a trial of candidates ended, for Python to read.

times: [candidates], in nanoseconds.
chosen: The number of the candidate chosen.
recorder: As in NoteStep.
reduction: As in NoteStep.
)doc");

REGISTER_OP("TfGc>KeepMeasurement")
    .Input("values: double")
    .Attr("recorder: int")
    .Attr("reduction: int")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Keeps what was measured in a compressed step.

values: Numbers, in whatever order Python reads them.
recorder: As in NoteStep.
reduction: As in NoteStep.
)doc");

REGISTER_OP("TfGc>CountSent")
    .Input("messages: int64")
    .Output("sent: int64")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Counts the codes of messages that stand for something other than zero.

messages: [rows, words]; every row is a message that Encode or Reencode made.
sent: Their number in all rows. With one bit all codes count.
codec: As it was encoded.
automatic: As it was encoded.
)doc");

}  // namespace tf_gc
