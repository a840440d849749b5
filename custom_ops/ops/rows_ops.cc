// Interface of the ops for rows: attributes and shapes. tf_gc/ops/rows.py says
// what they mean.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

std::string RowsCodecAttribute() {
  return absl::StrCat("codec: {'exact', ", CodecNames("'"), "}");
}

absl::Status EncodeRowsShape(InferenceContext* c) {
  c->set_output(0, c->Matrix(1, c->UnknownDim()));
  return absl::OkStatus();
}

absl::Status DecodeRowsShape(InferenceContext* c) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("shapes", &shapes));
  const int tables = static_cast<int>(shapes.size());
  for (int i = 0; i < tables; ++i) {
    ShapeHandle values;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &values));
    const DimensionHandle rows = c->UnknownDim();
    TF_RETURN_IF_ERROR(c->ReplaceDim(values, 0, rows, &values));
    c->set_output(i, values);
    c->set_output(tables + i, c->Vector(rows));
  }
  return absl::OkStatus();
}

REGISTER_OP("TfGc>EncodeRows")
    .Input("values: K * T")
    .Input("indices: K * int64")
    .Input("residuals: R * resource")
    .Output("message: int64")
    .Attr("K: int >= 1")
    .Attr("R: int >= 0")
    .Attr("T: {float, half, bfloat16}")
    .Attr("shapes: list(shape) >= 1")
    .Attr("names: list(string) >= 1")
    .Attr(RowsCodecAttribute())
    .Attr("layers: int >= 1 = 1")
    .SetIsStateful()
    .SetShapeFn(EncodeRowsShape);

REGISTER_OP("TfGc>DecodeRows")
    .Input("messages: M * int64")
    .Output("values: K * T")
    .Output("indices: K * int64")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("shapes: list(shape) >= 1")
    .Attr(RowsCodecAttribute())
    .Attr("layers: int >= 1 = 1")
    .SetShapeFn(DecodeRowsShape);

}  // namespace
}  // namespace tf_gc
