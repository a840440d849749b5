// Interface of the two-bit ops: inputs, attributes, shape functions, docs.

#include <cstring>

#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/shapes.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

absl::Status EncodeTwoBitShape(InferenceContext* c) {
  float threshold;
  TF_RETURN_IF_ERROR(c->GetAttr("threshold", &threshold));
  uint32_t threshold_bits;
  std::memcpy(&threshold_bits, &threshold, sizeof(threshold));
  return EncodeShape(c, TwoBitCodec(threshold_bits));
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
    .SetShapeFn(EncodeTwoBitShape)
    .Doc(R"doc(
Encodes a bucket of gradients in two bits an element and updates their residuals.

gradients: The bucket's tensors, of any shapes.
residuals: Handles of initialized float32 variables, each of its gradient's shape.
message: [shards, words], a message for each shard in the layout of
  custom_ops/lib/wire/wire.h.
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
    .Attr("layers: int >= 1 = 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      return ReencodeShape(c, Codec::kTwoBitAuto);
    })
    .Doc(R"doc(
Sums a shard over all replicas, encodes the sum and updates the residuals.

This replica adds its gradients and residuals in full precision.

messages: [rows, words] each; every row is a replica's message of the shard, with
  a scale for each block. The row number `shard`, which is this replica's, may
  hold anything.
gradients: The bucket's tensors. Only the shard is read.
residuals: As they were encoded, with the shard skipped. What is not sent of the
  sum becomes the residuals of the shard; the others stay as they are.
message: [layers, words]. The first encodes the sum, the second what that leaves.
shard: The number of this shard, and of the replica that owns it.
shards: The number of shards, and of replicas.
layers: 1 or 2.
)doc");

REGISTER_OP("TfGc>TwoBitCount")
    .Input("messages: M * int64")
    .Output("message: int64")
    .Attr("M: int >= 1")
    .Attr("threshold: float")
    .Attr("replicas: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      return CountShape(c, Codec::kTwoBitFixed);
    })
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
    .Attr("layers: int >= 1 = 1")
    .Attr("replicas: int >= 1")
    .SetShapeFn(DecodeShape)
    .Doc(R"doc(
Decodes a bucket of which every shard has a message of its own.

messages: [rows, words] each; the messages of the shards, in order: of
  TwoBitReencode with threshold 0, of TwoBitCount with another.
like: As for TwoBitDecode.
sums: The decoded shards, in the shapes of `like`.
threshold: As it was encoded.
shards: The number of shards.
layers: The number of rows for each shard, as it was reencoded.
replicas: The number of replicas that were summed.
)doc");

}  // namespace tf_gc
