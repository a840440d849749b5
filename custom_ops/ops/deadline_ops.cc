// Interface of the ops that limit the time of a collective. `tokens` are the
// ordering tokens of that collective: a tf.function then begins its deadline
// when the one before has ended, but does not order the ends of all deadlines,
// so that collectives of two replicas never wait for each other. A step that is
// cancelled, or ends, takes its deadlines with it.

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
    });

REGISTER_OP("TfGc>EndDeadline")
    .Input("deadline: int64")
    .Input("tokens: N * resource")
    .Attr("N: int >= 0")
    .SetIsStateful()
    .SetShapeFn(NoOutputs);

}  // namespace tf_gc
