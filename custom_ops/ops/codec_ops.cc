// Interface of the ops: inputs, attributes, shape functions, documentation.

#include "custom_ops/ops/codec_attribute.h"
#include "custom_ops/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace tf_gc {
REGISTER_OP("TfGc>Encode")
    .Input("gradients: K * T")
    .Input("residuals: K * resource")
    .Output("message: int64")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .Attr("threshold: float = 0")
    .Attr("shards: int >= 1 = 1")
    .Attr("skip: int = -1")
    .SetIsStateful()
    .SetShapeFn(EncodeShape)
    .Doc(R"doc(
Encodes a bucket of gradients and updates their residuals.

gradients: The bucket's tensors, of any shapes.
residuals: Handles of initialized float32 variables, each of its gradient's shape.
message: [shards, words], a message for each shard in the layout of
  custom_ops/lib/wire/wire.h.
codec: two_bit sends plus, minus or nothing for an element, one_bit plus or minus,
  three_bit and four_bit plus or minus one of 3 or 7 levels, or nothing.
automatic: Whether each block of 128 elements has its own scale, which is what
  plus and minus stand for. If not, `threshold` decides what is sent. three_bit
  and four_bit are always automatic.
threshold: 0 where `automatic`. Else, in two_bit: the value that is sent for an
  element whose magnitude reaches it. In one_bit: +1 is sent for an element that
  exceeds it, -1 for others.
shards: The number of shards that the bucket is cut into.
skip: The shard that is not encoded, -1 for none. Its message has zeros, and its
  residuals stay as they are. Only where `automatic`.
)doc");

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
    .SetShapeFn(DecodeShape)
    .Doc(R"doc(
Decodes messages of the same bucket and adds them in their order.

messages: [rows, words] each; every row is a message, one for each replica.
like: Tensors with the shapes of the bucket. Their values are not read; their
  buffers become the outputs' where nothing else needs them.
sums: The decoded sums, in the shapes of `like`.
codec: As it was encoded.
automatic: As it was encoded.
threshold: As it was encoded.
)doc");

REGISTER_OP("TfGc>Reencode")
    .Input("messages: M * int64")
    .Input("gradients: K * T")
    .Input("residuals: K * resource")
    .Output("message: int64")
    .Attr("M: int >= 1")
    .Attr("K: int >= 1")
    .Attr("T: {float, half, bfloat16}")
    .Attr(CodecAttribute())
    .Attr(CodecAttribute("sum_codec"))
    .Attr("shard: int >= 0")
    .Attr("shards: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ReencodeShape)
    .Doc(R"doc(
Sums a shard over all replicas, encodes the sum and updates the residuals.

This replica adds its gradients and residuals in full precision.

messages: [rows, words] each; every row is a replica's message of the shard, as
  Encode with `automatic` makes it. The row number `shard`, which is this
  replica's, may hold anything.
gradients: The bucket's tensors. Only the shard is read.
residuals: As they were encoded, with the shard skipped. What is not sent of the
  sum becomes the residuals of the shard; the others stay as they are.
message: [1, words], the encoded sum.
codec: As it was encoded.
sum_codec: What the sum is encoded by, with automatic scales: `codec`, or a finer
  one: three_bit for one_bit and two_bit, four_bit for three_bit.
shard: The number of this shard, and of the replica that owns it.
shards: The number of shards, and of replicas.
)doc");

REGISTER_OP("TfGc>Count")
    .Input("messages: M * int64")
    .Output("message: int64")
    .Attr("M: int >= 1")
    .Attr(CodecAttribute())
    .Attr("threshold: float")
    .Attr("replicas: int >= 1")
    .SetShapeFn(CountShape)
    .Doc(R"doc(
Sums messages with a fixed threshold, without loss.

messages: [rows, words] each; every row is a replica's message of the same shard,
  as Encode without `automatic` makes it.
message: [1, words], a count for each element in 4, 8 or 16 bits.
codec: As it was encoded.
threshold: As it was encoded.
replicas: The number of rows, which decides the bits of a count.
)doc");

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
    .SetShapeFn(DecodeShape)
    .Doc(R"doc(
Decodes a bucket of which every shard has a message of its own.

messages: [rows, words] each; the messages of the shards, in order: of Reencode
  where `automatic`, else of Count.
like: As for Decode.
sums: The decoded shards, in the shapes of `like`.
codec: As it was encoded.
automatic: As it was encoded.
threshold: As it was encoded.
shards: The number of shards.
replicas: The number of replicas that were summed.
)doc");

}  // namespace tf_gc
