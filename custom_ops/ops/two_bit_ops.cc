// Interface of the two-bit ops: inputs, attributes, shape functions, docs.

#include <cstring>
#include <vector>

#include "custom_ops/lib/wire.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeAndType;
using ::tensorflow::shape_inference::ShapeHandle;

// A residual has the shape of its gradient and is float32.
absl::Status CheckResidual(InferenceContext* c, int index,
                           ShapeHandle gradient) {
  ShapeHandle scalar;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(index), 0, &scalar));
  const std::vector<ShapeAndType>* handle =
      c->input_handle_shapes_and_types(index);
  if (handle == nullptr || handle->empty()) return absl::OkStatus();
  const tensorflow::DataType dtype = handle->front().dtype;
  if (dtype != tensorflow::DT_FLOAT && dtype != tensorflow::DT_INVALID) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a residual must be float32, got ", tensorflow::DataTypeString(dtype)));
  }
  ShapeHandle merged;
  return c->Merge(handle->front().shape, gradient, &merged);
}

// The codec of the attribute `threshold`.
absl::Status GetCodec(InferenceContext* c, Codec* codec) {
  float threshold;
  TF_RETURN_IF_ERROR(c->GetAttr("threshold", &threshold));
  uint32_t threshold_bits;
  std::memcpy(&threshold_bits, &threshold, sizeof(threshold));
  *codec = TwoBitCodec(threshold_bits);
  return absl::OkStatus();
}

// Checks the residuals, and gives the words of a message with a shard of the
// gradients, which are inputs from `first` on.
absl::Status ShardWords(InferenceContext* c, int first, Codec codec,
                        DimensionHandle* words) {
  int count;
  int64_t shards;
  TF_RETURN_IF_ERROR(c->GetAttr("K", &count));
  TF_RETURN_IF_ERROR(c->GetAttr("shards", &shards));
  bool known = true;
  int64_t blocks = 0;
  for (int i = first; i < first + count; ++i) {
    TF_RETURN_IF_ERROR(CheckResidual(c, count + i, c->input(i)));
    const DimensionHandle elements = c->NumElements(c->input(i));
    known = known && c->ValueKnown(elements);
    if (known) blocks += NumBlocks(c->Value(elements));
  }
  *words = c->UnknownDim();
  if (known) {
    *words = c->MakeDim(LayoutOf(codec, ShardBlocks(blocks, shards)).words());
  }
  return absl::OkStatus();
}

// Merges `words` with those of the messages, the first inputs.
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
  TF_RETURN_IF_ERROR(GetCodec(c, &codec));
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
  int messages;
  DimensionHandle words;
  TF_RETURN_IF_ERROR(c->GetAttr("M", &messages));
  TF_RETURN_IF_ERROR(ShardWords(c, messages, Codec::kTwoBitAuto, &words));
  TF_RETURN_IF_ERROR(MergeMessages(c, &words));
  c->set_output(0, c->Matrix(1, words));
  return absl::OkStatus();
}

absl::Status CountShape(InferenceContext* c) {
  int64_t replicas;
  DimensionHandle words = c->UnknownDim();
  TF_RETURN_IF_ERROR(c->GetAttr("replicas", &replicas));
  TF_RETURN_IF_ERROR(MergeMessages(c, &words));
  if (c->ValueKnown(words)) {
    const int64_t blocks = BlocksOf(Codec::kTwoBitFixed, c->Value(words));
    if (blocks < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no message with a fixed threshold has ", c->Value(words), " words"));
    }
    const Codec codec = CountsCodec(CountBits(replicas));
    words = c->MakeDim(LayoutOf(codec, blocks).words());
  }
  c->set_output(0, c->Matrix(1, words));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>TwoBitEncode")
    .Input("gradients: K * T")
    .Input("residuals: K * resource")
    .Output("message: int64")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("threshold: float")
    .Attr("shards: int >= 1 = 1")
    .Attr("skip: int = -1")
    .SetIsStateful()
    .SetShapeFn(EncodeShape)
    .Doc(R"doc(
Encodes a bucket of gradients in two bits an element and updates their residuals.

gradients: The bucket's tensors, of any shapes.
residuals: Handles of initialized float32 variables, each of its gradient's shape.
message: [shards, words], a message for each shard in the layout of
  custom_ops/lib/wire.h.
threshold: The value sent for an element that reaches it; 0 chooses a scale for
  each block of 128 elements instead.
shards: The number of shards that the bucket is cut into.
skip: The shard that is not encoded, -1 for none. Its message has zeros, and its
  residuals stay as they are. With threshold 0 only.
)doc");

REGISTER_OP("TfGc>TwoBitDecode")
    .Input("messages: M * int64")
    .Input("like: K * T")
    .Output("sums: K * T")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("threshold: float")
    .SetShapeFn(DecodeShape)
    .Doc(R"doc(
Decodes messages of the same bucket and adds them in their order.

messages: [rows, words] each; every row is a message, one for each replica.
like: Tensors with the shapes of the bucket. Their values are not read; their
  buffers become the outputs' where nothing else needs them.
sums: The decoded sums, in the shapes of `like`.
threshold: As it was encoded.
)doc");

REGISTER_OP("TfGc>TwoBitReencode")
    .Input("messages: M * int64")
    .Input("gradients: K * T")
    .Input("residuals: K * resource")
    .Output("message: int64")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("shard: int >= 0")
    .Attr("shards: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ReencodeShape)
    .Doc(R"doc(
Sums a shard over all replicas, encodes the sum and updates the residuals.

This replica adds its gradients and residuals in full precision.

messages: [rows, words] each; every row is a replica's message of the shard, with
  a scale for each block. The row number `shard`, which is this replica's, may
  hold anything.
gradients: The bucket's tensors. Only the shard is read.
residuals: As they were encoded, with the shard skipped. What is not sent of the
  sum becomes the residuals of the shard; the others stay as they are.
message: [1, words], the sum.
shard: The number of this shard, and of the replica that owns it.
shards: The number of shards, and of replicas.
)doc");

REGISTER_OP("TfGc>TwoBitCount")
    .Input("messages: M * int64")
    .Output("message: int64")
    .Attr("M: int >= 1")
    .Attr("threshold: float")
    .Attr("replicas: int >= 1")
    .SetShapeFn(CountShape)
    .Doc(R"doc(
Sums messages with a fixed threshold, without loss.

messages: [rows, words] each; every row is a replica's message of the same shard.
message: [1, words], a count for each element in 4, 8 or 16 bits.
threshold: As it was encoded.
replicas: The number of rows, which decides the bits of a count.
)doc");

REGISTER_OP("TfGc>TwoBitDecodeShards")
    .Input("messages: M * int64")
    .Input("like: K * T")
    .Output("sums: K * T")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("threshold: float")
    .Attr("shards: int >= 1")
    .Attr("replicas: int >= 1")
    .SetShapeFn(DecodeShape)
    .Doc(R"doc(
Decodes a bucket of which every shard has a message of its own.

messages: [rows, words] each; every row is the message of a shard, in order: of
  TwoBitReencode with threshold 0, of TwoBitCount with another.
like: As for TwoBitDecode.
sums: The decoded shards, in the shapes of `like`.
threshold: As it was encoded.
shards: The number of rows.
replicas: The number of replicas that were summed.
)doc");

}  // namespace tf_gc
