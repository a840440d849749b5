// Interface of the ops for low rank: attributes and shapes.
// tf_gc/ops/factors.py says what they mean.

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
  // false if a shape is not known, or no such matrix has it.
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
    .SetShapeFn(ProjectFactorsShape);

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
    .SetShapeFn(EncodeFactorsShape);

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
    .SetShapeFn(DecodeFactorsShape);

}  // namespace
}  // namespace tf_gc
