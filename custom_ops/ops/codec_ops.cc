// Interface of the ops of gradients and messages: attributes and shapes.
// tf_gc/ops/codec.py and tf_gc/ops/shards.py say what they mean.

#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/codec_attribute.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeAndType;
using ::tensorflow::shape_inference::ShapeHandle;

// Checks that a residual has a dtype that there is and, unless that is int8,
// the shape of its gradient. `merged` gets that shape, as far as both together
// tell it: TensorFlow may not know the shape of a gradient out of a loop, and
// collectives need messages of a known length.
absl::Status MergeResidual(InferenceContext* c, int index, ShapeHandle gradient,
                           ShapeHandle* merged) {
  *merged = gradient;
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(index), 0, &scalar));
  const std::vector<ShapeAndType>* handle =
      c->input_handle_shapes_and_types(index);
  if (handle == nullptr || handle->empty()) return absl::OkStatus();
  const tensorflow::DataType dtype = handle->front().dtype;
  if (dtype == tensorflow::DT_INT8) return absl::OkStatus();
  if (dtype != tensorflow::DT_FLOAT && dtype != tensorflow::DT_BFLOAT16 &&
      dtype != tensorflow::DT_INVALID) {
    return absl::InvalidArgumentError(
        absl::StrCat("a residual must be float32, bfloat16 or int8, got ",
                     tensorflow::DataTypeString(dtype)));
  }
  return c->Merge(handle->front().shape, gradient, merged);
}

// Checks the residuals, if there are any, and gives the number of words in a
// message with a shard of the gradients. The gradients are the inputs from
// number `first` on.
absl::Status ShardWords(InferenceContext* c, int first, Codec codec,
                        DimensionHandle* words) {
  int count;
  int64_t shards;
  TF_RETURN_IF_ERROR(c->GetAttr("K", &count));
  TF_RETURN_IF_ERROR(c->GetAttr("shards", &shards));
  bool known = true;
  int64_t blocks = 0;
  for (int i = first; i < first + count; ++i) {
    ShapeHandle shape = c->input(i);
    if (count + i < c->num_inputs()) {
      TF_RETURN_IF_ERROR(MergeResidual(c, count + i, c->input(i), &shape));
    }
    const DimensionHandle elements = c->NumElements(shape);
    known = known && c->ValueKnown(elements);
    if (known) blocks += NumBlocks(c->Value(elements));
    if (blocks > kMaxBlocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("a bucket has at most ", kMaxBlocks, " blocks of ",
                       kBlockSize, " elements, got ", blocks));
    }
  }
  *words = c->UnknownDim();
  if (known) {
    *words = c->MakeDim(LayoutOf(codec, ShardBlocks(blocks, shards)).words());
  }
  return absl::OkStatus();
}

// Merges `words` with the numbers of words in the messages, the first inputs.
absl::Status MergeMessages(InferenceContext* c, DimensionHandle* words) {
  int messages;
  TF_RETURN_IF_ERROR(c->GetAttr("M", &messages));
  for (int i = 0; i < messages; ++i) {
    ShapeHandle message;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 2, &message));
    TF_RETURN_IF_ERROR(c->Merge(*words, c->Dim(message, 1), words));
  }
  return absl::OkStatus();
}

absl::Status EncodeShape(InferenceContext* c) {
  Codec codec;
  int64_t shards;
  DimensionHandle words;
  TF_RETURN_IF_ERROR(ReadCodec(c, &codec));
  TF_RETURN_IF_ERROR(c->GetAttr("shards", &shards));
  TF_RETURN_IF_ERROR(ShardWords(c, 0, codec, &words));
  c->set_output(0, c->Matrix(shards, words));
  return absl::OkStatus();
}

absl::Status DecodeShape(InferenceContext* c) {
  int messages;
  int count;
  TF_RETURN_IF_ERROR(c->GetAttr("M", &messages));
  TF_RETURN_IF_ERROR(c->GetAttr("K", &count));
  DimensionHandle words = c->UnknownDim();
  TF_RETURN_IF_ERROR(MergeMessages(c, &words));
  for (int i = 0; i < count; ++i) c->set_output(i, c->input(messages + i));
  return absl::OkStatus();
}

absl::Status ReencodeShape(InferenceContext* c) {
  Codec codec;
  Codec sum_codec;
  int messages;
  DimensionHandle words;
  TF_RETURN_IF_ERROR(c->GetAttr("M", &messages));
  TF_RETURN_IF_ERROR(ReadSumCodecs(c, &codec, &sum_codec));
  TF_RETURN_IF_ERROR(ShardWords(c, messages, codec, &words));
  TF_RETURN_IF_ERROR(MergeMessages(c, &words));
  TF_RETURN_IF_ERROR(ShardWords(c, messages, sum_codec, &words));
  c->set_output(0, c->Matrix(1, words));
  return absl::OkStatus();
}

absl::Status CountShape(InferenceContext* c) {
  Codec codec;
  int64_t replicas;
  DimensionHandle words = c->UnknownDim();
  TF_RETURN_IF_ERROR(ReadCodec(c, /*automatic=*/false, &codec));
  TF_RETURN_IF_ERROR(c->GetAttr("replicas", &replicas));
  TF_RETURN_IF_ERROR(MergeMessages(c, &words));
  if (c->ValueKnown(words)) {
    int64_t blocks;
    TF_RETURN_IF_ERROR(ReadBlocks(codec, c->Value(words), &blocks));
    const Codec counts = CountsCodec(BitsOfCount(replicas));
    words = c->MakeDim(LayoutOf(counts, blocks).words());
  }
  c->set_output(0, c->Matrix(1, words));
  return absl::OkStatus();
}

REGISTER_OP("TfGc>Encode")
    .Input("gradients: K * T")
    .Input("residuals: R * resource")
    .Output("message: int64")
    .Attr("K: int >= 1")
    .Attr("R: int >= 0")
    .Attr("T: {float, half, bfloat16}")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .Attr("threshold: float = 0")
    .Attr("shards: int >= 1 = 1")
    .Attr("skip: int = -1")
    .SetIsStateful()
    .SetShapeFn(EncodeShape);

REGISTER_OP("TfGc>Decode")
    .Input("messages: M * int64")
    .Input("like: K * T")
    .Output("sums: K * T")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .Attr("threshold: float = 0")
    .SetShapeFn(DecodeShape);

REGISTER_OP("TfGc>Reencode")
    .Input("messages: M * int64")
    .Input("gradients: K * T")
    .Input("residuals: R * resource")
    .Output("message: int64")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("R: int >= 0")
    .Attr("T: {float, half, bfloat16}")
    .Attr(CodecAttribute())
    .Attr(CodecAttribute("sum_codec"))
    .Attr("shard: int >= 0")
    .Attr("shards: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ReencodeShape);

REGISTER_OP("TfGc>Count")
    .Input("messages: M * int64")
    .Output("message: int64")
    .Attr("M: int >= 1")
    .Attr(CodecAttribute())
    .Attr("threshold: float")
    .Attr("replicas: int >= 1")
    .SetShapeFn(CountShape);

REGISTER_OP("TfGc>DecodeShards")
    .Input("messages: M * int64")
    .Input("like: K * T")
    .Output("sums: K * T")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .Attr("threshold: float = 0")
    .Attr("shards: int >= 1")
    .Attr("replicas: int >= 1")
    .SetShapeFn(DecodeShape);

}  // namespace
}  // namespace tf_gc
