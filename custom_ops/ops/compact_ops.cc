// Interface of the ops of the compact wire.

#include "custom_ops/ops/codec_attribute.h"
#include "custom_ops/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace tf_gc {

REGISTER_OP("TfGc>Pack")
    .Input("messages: int64")
    .Output("compact: int64")
    .Output("lengths: int64")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .Attr("threshold: float = 0")
    .Attr("periods: list(int) = []")
    .SetShapeFn(PackShape)
    .Doc(R"doc(
Packs messages into fewer words, without loss.

messages: [rows, words], each row a message of Encode or Reencode.
compact: [rows, n], with n not below `words`. The message of a row is in its
  first words; the others are 0.
lengths: [rows], the number of words that the message of each row takes, at most
  `words`.
codec: As it was encoded. Not one_bit, whose codes do not get smaller.
automatic: As it was encoded.
threshold: As it was encoded.
periods: At most 4 numbers of blocks, each from 1 to 4096, after which the rows
  of a matrix begin with the same element of a block again. Where codes of a
  column are alike, the messages get shorter. What Unpack makes is the same.
)doc");

REGISTER_OP("TfGc>Unpack")
    .Input("compact: int64")
    .Input("words: int64")
    .Output("messages: int64")
    .Attr(CodecAttribute())
    .Attr("automatic: bool")
    .Attr("threshold: float = 0")
    .SetShapeFn(UnpackShape)
    .Doc(R"doc(
Unpacks what Pack made.

compact: [rows, n], each row the first words of a row of Pack: at least as many
  as its length.
words: A scalar, the number of words in each message.
messages: [rows, words], the messages that were packed.
codec: As it was packed.
automatic: As it was packed.
threshold: As it was packed.
)doc");

}  // namespace tf_gc
