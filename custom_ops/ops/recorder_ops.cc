// Interface of the ops of a recorder, and of the one that counts what is sent:
// attributes and shapes. tf_gc/ops/recorder.py says what they mean.

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
    .SetIsStateful()
    .SetShapeFn(ScalarShape);

REGISTER_OP("TfGc>TrialTimes")
    .Output("times: int64")
    .Attr("recorder: int")
    .Attr("reduction: int")
    .Attr("latest: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Vector(2));
      return absl::OkStatus();
    });

REGISTER_OP("TfGc>Keep")
    .Input("values: double")
    .Attr("recorder: int")
    .Attr("reduction: int")
    .Attr("of_trial: bool")
    .SetIsStateful()
    .SetShapeFn(NoOutputs);

REGISTER_OP("TfGc>CountSent")
    .Input("messages: int64")
    .Output("sent: int64")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .SetShapeFn(ScalarShape);

}  // namespace tf_gc
