// Interface of the ops for low rank.

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

// The elements of what the factors P, or Q, of all matrices take together.
struct FactorSizes {
  int64_t p = 0;
  int64_t q = 0;

  // `first` is the first of the inputs with the shapes of the matrices. Returns
  // false if a shape is not known, or is that of no such matrix.
  bool Read(InferenceContext* c, int first) {
    std::vector<int64_t> rows;
    int64_t rank;
    if (!c->GetAttr("rows", &rows).ok() || !c->GetAttr("rank", &rank).ok()) {
      return false;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const int input = first + static_cast<int>(i);
      if (input >= c->num_inputs() || rows[i] < 1) return false;
      const auto elements = c->NumElements(c->input(input));
      if (!c->ValueKnown(elements)) return false;
      p += rank * rows[i];
      q += rank * (c->Value(elements) / rows[i]);
    }
    return true;
  }
};

absl::Status ProjectFactorsShape(InferenceContext* c) {
  FactorSizes sizes;
  const bool known = sizes.Read(c, 0);
  c->set_output(0, c->Vector(known ? sizes.p : InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status EncodeFactorsShape(InferenceContext* c) {
  FactorSizes sizes;
  const bool known = sizes.Read(c, 0);
  c->set_output(0, c->Vector(known ? sizes.q : InferenceContext::kUnknownDim));
  c->set_output(1, c->input(c->num_inputs() - 1));
  return absl::OkStatus();
}

absl::Status DecodeFactorsShape(InferenceContext* c) {
  int matrices;
  TF_RETURN_IF_ERROR(c->GetAttr("K", &matrices));
  for (int i = 0; i < matrices; ++i) {
    c->set_output(i, c->input(2 + matrices + i));
    c->set_output(matrices + i, c->input(2 + i));
  }
  return absl::OkStatus();
}

REGISTER_OP("TfGc>ProjectFactors")
    .Input("gradients: K * T")
    .Input("residuals: K * resource")
    .Input("factors: K * float")
    .Output("message: float")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("rows: list(int) >= 1")
    .Attr("rank: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ProjectFactorsShape)
    .Doc(R"doc(
Multiplies matrices, gradient plus residual, with their factors Q.
custom_ops/lib/low_rank/factors.h says what factors are.

gradients: Of any shapes; the last axes are the columns of a matrix.
residuals: The handles of initialized float32 variables of the same shapes, which
  do not change.
factors: For each matrix [rank * columns], the columns of Q, which are
  orthonormal, or zeros at the start.
message: [rank * all rows], the columns of P of each matrix.
rows: The rows of each matrix.
rank: The columns of a factor.
)doc");

REGISTER_OP("TfGc>EncodeFactors")
    .Input("gradients: K * T")
    .Input("residuals: K * resource")
    .Input("total: float")
    .Output("message: float")
    .Output("basis: float")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("rows: list(int) >= 1")
    .Attr("rank: int >= 1")
    .SetIsStateful()
    .SetShapeFn(EncodeFactorsShape)
    .Doc(R"doc(
Makes the columns of P orthonormal, multiplies the transposed matrices with P, and
keeps in the residuals what the product of both factors leaves.

gradients: As in ProjectFactors.
residuals: Likewise; they change.
total: The sum of the messages of ProjectFactors.
message: [rank * all columns], the columns of Q of each matrix.
basis: The columns of P of each matrix, orthonormal.
rows: As in ProjectFactors.
rank: Likewise.
)doc");

REGISTER_OP("TfGc>DecodeFactors")
    .Input("total: float")
    .Input("basis: float")
    .Input("factors: K * float")
    .Input("like: K * T")
    .Output("sums: K * T")
    .Output("next: K * float")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("rows: list(int) >= 1")
    .Attr("rank: int >= 1")
    .SetShapeFn(DecodeFactorsShape)
    .Doc(R"doc(
Multiplies both factors, and makes the factors Q of the next step.

total: The sum of the messages of EncodeFactors.
basis: The `basis` of EncodeFactors.
factors: Those that went into ProjectFactors.
like: Tensors of the shapes and the dtype of the sums.
sums: For each matrix the sum of what the replicas have sent of it.
next: The columns of Q, orthonormal. Where `total` is not finite, they are those
  of `factors`.
rows: As in ProjectFactors.
rank: Likewise.
)doc");

}  // namespace
}  // namespace tf_gc
