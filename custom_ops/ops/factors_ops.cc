// Interface of the ops for low rank.

#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

absl::Status EncodeFactorsShape(InferenceContext* c) {
  int64_t size;
  TF_RETURN_IF_ERROR(c->GetAttr("size", &size));
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

absl::Status DecodeFactorsShape(InferenceContext* c) {
  int matrices;
  TF_RETURN_IF_ERROR(c->GetAttr("K", &matrices));
  for (int i = 0; i < matrices; ++i) {
    c->set_output(i, c->input(1 + matrices + i));
    c->set_output(matrices + i, c->input(1 + i));
  }
  return absl::OkStatus();
}

REGISTER_OP("TfGc>EncodeFactors")
    .Input("gradients: K * T")
    .Input("residuals: K * resource")
    .Input("factors: K * float")
    .Output("message: float")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("rows: list(int) >= 1")
    .Attr("p_first: list(bool) >= 1")
    .Attr("rank: int >= 1")
    .Attr("size: int >= 1")
    .SetIsStateful()
    .SetShapeFn(EncodeFactorsShape)
    .Doc(R"doc(
Encodes matrices, gradient plus residual, as one of their two factors, and
updates the residuals. custom_ops/lib/low_rank/factors.h says what that is.

gradients: Of any shapes; the last axes are the columns of a matrix.
residuals: The handles of initialized float32 variables of the same shapes.
factors: For each matrix [1 + rank * (rows + columns)]: the turn, 0 or 1, that of
  the first one counts for all; P and Q.
message: [size], the factors that are sent in this turn, and zeros after them.
rows: The rows of each matrix.
p_first: Whether P is sent in turn 0 and Q in turn 1, or the other way round.
rank: The columns of a factor.
size: At least what the messages of both turns need.
)doc");

REGISTER_OP("TfGc>DecodeFactors")
    .Input("total: float")
    .Input("factors: K * float")
    .Input("like: K * T")
    .Output("sums: K * T")
    .Output("next: K * float")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("rows: list(int) >= 1")
    .Attr("p_first: list(bool) >= 1")
    .Attr("rank: int >= 1")
    .SetShapeFn(DecodeFactorsShape)
    .Doc(R"doc(
Multiplies the sum of the messages of all replicas with the factors that those
were encoded with, and makes the next factors.

total: The sum of messages of EncodeFactors.
factors: Those that went into EncodeFactors.
like: Tensors of the shapes and the dtype of the sums.
sums: For each matrix the sum of what the replicas have sent of it.
next: The factors of the next step. What is not finite in `total` leaves its
  factor as it is.
rows: As they were encoded.
p_first: As they were encoded.
rank: As they were encoded.
)doc");

}  // namespace
}  // namespace tf_gc
