// Interface of the ops that limit the time of a collective.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::NoOutputs;

REGISTER_OP("TfGc>BeginDeadline")
    .Input("tokens: N * resource")
    .Output("deadline: int64")
    .Attr("N: int >= 0")
    .Attr("seconds: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Vector(2));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Lets all collectives of this process fail unless EndDeadline runs in time.

A step that is cancelled, or ends, takes its deadlines with it.

tokens: The ordering tokens of the collective that follows. A tf.function then
  begins the deadline when the one before has ended.
deadline: For EndDeadline.
seconds: How long the collective may take.
)doc");

REGISTER_OP("TfGc>EndDeadline")
    .Input("deadline: int64")
    .Input("tokens: N * resource")
    .Attr("N: int >= 0")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Ends a deadline: the collective is done.

deadline: That of BeginDeadline.
tokens: The same as of BeginDeadline. Without them a tf.function would order the
  ends of all deadlines, and collectives of two replicas would wait for each
  other.
)doc");

}  // namespace tf_gc
