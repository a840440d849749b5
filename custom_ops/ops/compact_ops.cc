// Interface of the ops of the compact wire: attributes and shapes.
// tf_gc/ops/compact.py says what they mean.

#include "custom_ops/lib/compact/compact.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Reads a codec whose messages have a compact form, and checks that they may
// have `words` words.
absl::Status ReadCompactCodec(InferenceContext* c, DimensionHandle words,
                              Codec* codec) {
  TF_RETURN_IF_ERROR(ReadCodec(c, codec));
  TF_RETURN_IF_ERROR(CheckCompactible(*codec));
  int64_t blocks;
  if (!c->ValueKnown(words)) return absl::OkStatus();
  return ReadBlocks(*codec, c->Value(words), &blocks);
}

absl::Status PackShape(InferenceContext* c) {
  Codec codec;
  ShapeHandle messages;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &messages));
  const DimensionHandle words = c->Dim(messages, 1);
  TF_RETURN_IF_ERROR(ReadCompactCodec(c, words, &codec));
  DimensionHandle capacity = c->UnknownDim();
  if (c->ValueKnown(words)) {
    const int64_t blocks = BlocksOf(codec, c->Value(words));
    capacity =
        c->MakeDim(PackCapacity(codec, LayoutOf(codec, blocks)) / kWordBytes);
  }
  c->set_output(0, c->Matrix(c->Dim(messages, 0), capacity));
  c->set_output(1, c->Vector(c->Dim(messages, 0)));
  return absl::OkStatus();
}

absl::Status UnpackShape(InferenceContext* c) {
  Codec codec;
  ShapeHandle compact;
  ShapeHandle scalar;
  DimensionHandle words;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &compact));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &scalar));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(1, &words));
  TF_RETURN_IF_ERROR(ReadCompactCodec(c, words, &codec));
  c->set_output(0, c->Matrix(c->Dim(compact, 0), words));
  return absl::OkStatus();
}

REGISTER_OP("TfGc>Pack")
    .Input("messages: int64")
    .Output("compact: int64")
    .Output("lengths: int64")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .Attr("threshold: float = 0")
    .Attr("periods: list(int) = []")
    .SetShapeFn(PackShape);

REGISTER_OP("TfGc>Unpack")
    .Input("compact: int64")
    .Input("words: int64")
    .Output("messages: int64")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .Attr("threshold: float = 0")
    .SetShapeFn(UnpackShape);

}  // namespace
}  // namespace tf_gc
