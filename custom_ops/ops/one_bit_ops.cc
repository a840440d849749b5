// Interface of the one-bit ops: inputs, attributes, shape functions, docs.

#include "custom_ops/lib/wire/wire.h"
#include "custom_ops/ops/shapes.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {

using ::tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TfGc>OneBitEncode")
    .Input("gradients: K * T")
    .Input("residuals: K * resource")
    .Output("message: int64")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("fixed: bool")
    .Attr("threshold: float = 0")
    .Attr("shards: int >= 1 = 1")
    .Attr("skip: int = -1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      bool fixed;
      TF_RETURN_IF_ERROR(c->GetAttr("fixed", &fixed));
      return EncodeShape(c, fixed ? Codec::kOneBitFixed : Codec::kOneBitAuto);
    })
    .Doc(R"doc(
Encodes a bucket of gradients in one bit an element and updates their residuals.

gradients: The bucket's tensors, of any shapes.
residuals: Handles of initialized float32 variables, each of its gradient's shape.
message: [shards, words], a message for each shard in the layout of
  custom_ops/lib/wire/wire.h.
fixed: Whether +1 or -1 is sent. If not, each block of 128 elements has a scale.
threshold: What an element has to exceed to be sent as +1, where `fixed`.
shards: The number of shards that the bucket is cut into.
skip: The shard that is not encoded, -1 for none. Its message has zeros, and its
  residuals stay as they are. Not where `fixed`.
)doc");

REGISTER_OP("TfGc>OneBitDecode")
    .Input("messages: M * int64")
    .Input("like: K * T")
    .Output("sums: K * T")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("fixed: bool")
    .Attr("threshold: float = 0")
    .SetShapeFn(DecodeShape)
    .Doc(R"doc(
Decodes messages of the same bucket and adds them in their order.

messages: [rows, words] each; every row is a message, one for each replica.
like: Tensors with the shapes of the bucket. Their values are not read; their
  buffers become the outputs' where nothing else needs them.
sums: The decoded sums, in the shapes of `like`.
fixed: As it was encoded.
threshold: As it was encoded.
)doc");

REGISTER_OP("TfGc>OneBitReencode")
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
      return ReencodeShape(c, Codec::kOneBitAuto);
    })
    .Doc(R"doc(
Sums a shard over all replicas, encodes the sum and updates the residuals.

This replica adds its gradients and residuals in full precision.

messages: [rows, words] each; every row is a replica's message of the shard, not
  `fixed`. The row number `shard`, which is this replica's, may
  hold anything.
gradients: The bucket's tensors. Only the shard is read.
residuals: As they were encoded, with the shard skipped. What is not sent of the
  sum becomes the residuals of the shard; the others stay as they are.
message: [layers, words]. The first encodes the sum, the second what that leaves.
shard: The number of this shard, and of the replica that owns it.
shards: The number of shards, and of replicas.
layers: 1 or 2.
)doc");

REGISTER_OP("TfGc>OneBitCount")
    .Input("messages: M * int64")
    .Output("message: int64")
    .Attr("M: int >= 1")
    .Attr("fixed: bool")
    .Attr("threshold: float = 0")
    .Attr("replicas: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      return CountShape(c, Codec::kOneBitFixed);
    })
    .Doc(R"doc(
Sums messages that are `fixed`, without loss.

messages: [rows, words] each; every row is a replica's message of the same shard.
message: [1, words], a count for each element in 4, 8 or 16 bits.
fixed: True.
threshold: As it was encoded.
replicas: The number of rows, which decides the bits of a count.
)doc");

REGISTER_OP("TfGc>OneBitDecodeShards")
    .Input("messages: M * int64")
    .Input("like: K * T")
    .Output("sums: K * T")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr("fixed: bool")
    .Attr("threshold: float = 0")
    .Attr("shards: int >= 1")
    .Attr("layers: int >= 1 = 1")
    .Attr("replicas: int >= 1")
    .SetShapeFn(DecodeShape)
    .Doc(R"doc(
Decodes a bucket of which every shard has a message of its own.

messages: [rows, words] each; the messages of the shards, in order: of
  OneBitCount where `fixed`, else of OneBitReencode.
like: As for OneBitDecode.
sums: The decoded shards, in the shapes of `like`.
fixed: As it was encoded.
threshold: As it was encoded.
shards: The number of shards.
layers: The number of rows for each shard, as it was reencoded.
replicas: The number of replicas that were summed.
)doc");

}  // namespace tf_gc
