// Interface of the ops for rows.

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
    .SetShapeFn(EncodeRowsShape)
    .Doc(R"doc(
Encodes the gradients of tables of which only some rows are not zero.

values: For each table [n, ...], the rows of its gradient.
indices: For each table [n], the row of the table that each row belongs to. Rows
  that occur more than once are added in their order.
residuals: None, or for each table the handle of an initialized float32 variable
  of its shape. Only the rows that are sent change.
message: [1, words], in the layout of custom_ops/lib/wire/rows_wire.h; how many
  words depends on the indices.
shapes: The shapes of the tables.
names: What the tables are called in an error.
codec: `exact` sends rows in float32. The others have a scale for each row, or
  for each of the equal parts of a row of more than 128 elements.
layers: 1, or without residuals also 2: the second layer encodes what the first
  one leaves.
)doc");

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
    .SetShapeFn(DecodeRowsShape)
    .Doc(R"doc(
Decodes the messages of all replicas, and adds rows of one index in the order of
the messages.

messages: [rows, words] each; every row is a message of EncodeRows, perhaps with
  zeros after it.
values: For each table [n, ...], the rows of the sum.
indices: For each table [n], ascending, each once.
shapes: As they were encoded.
codec: As it was encoded.
layers: As it was encoded.
)doc");

}  // namespace
}  // namespace tf_gc
