"""Wrappers of the ops that encode rows of tables and decode their messages.

The gradient of an embedding is a `tf.IndexedSlices`: some rows of a table, one index perhaps
several times. A message has each row once, with its index. Each row has a scale of its own, and a
row of more than 128 elements one for each of the equal parts, of at most 128 elements, into which
it is cut; codes are as from `tf_gc.ops.encode` with automatic scales.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_gc.ops import _loader
from tf_gc.ops._arguments import Messages, Variables, as_list, handles

# Instead of a codec: rows in float32.
EXACT = "exact"


def encode_rows(
    gradients: Sequence[tf.IndexedSlices],
    residuals: Variables,
    shapes: Sequence[Sequence[int]],
    codec: str = "three_bit",
    layers: int = 1,
    names: Sequence[str] = (),
) -> tf.Tensor:
    """Encodes rows of tables, and updates their residuals.

    Rows that occur more than once are added in float32, in their order.

    Args:
      gradients: of one dtype (float32, float16 or bfloat16); at least one.
      residuals: one initialized float32 or bfloat16 variable for each gradient, of the shape of its
        table, of which only the rows that are sent change; or none, and what is not sent is not
        kept.
      shapes: the shapes of the tables.
      codec: the codec's name, or `"exact"`, which sends rows in float32 and takes no residuals.
      layers: 1; without residuals, 2 sends in the codes again what the first codes leave.
      names: what the tables are called in an error; their numbers by default.

    Returns:
      The message: int64 [1, words].

    Raises:
      tf.errors.InvalidArgumentError: if an index has no row, something does not fit its table, or
        there are residuals where nothing is kept. No residual has changed.
    """
    return _loader.load().tf_gc_encode_rows(
        values=[gradient.values for gradient in as_list(gradients, "gradients")],
        indices=[tf.cast(gradient.indices, tf.int64) for gradient in gradients],
        residuals=handles(residuals),
        shapes=[list(shape) for shape in shapes],
        names=list(names) or [f"table {number}" for number in range(len(gradients))],
        codec=codec,
        layers=layers,
    )


def decode_rows(
    messages: Messages,
    shapes: Sequence[Sequence[int]],
    dtype: tf.DType = tf.float32,
    codec: str = "three_bit",
    layers: int = 1,
) -> list[tf.IndexedSlices]:
    """Decodes the messages of all replicas, and adds rows of one index in the order of messages.

    `messages`, int64 [rows, words] or a list of such tensors, are those of `encode_rows`, perhaps
    with zeros after them. Returns for each table the rows of the sum, in ascending order, each
    once. An element that any replica marked as not finite is NaN.

    Raises:
      tf.errors.InvalidArgumentError: if a message has another wire version, codec, layers or
        tables, or is cut off.
    """
    values, indices = _loader.load().tf_gc_decode_rows(
        messages=as_list(messages),
        K=len(shapes),
        T=dtype,
        shapes=[list(shape) for shape in shapes],
        codec=codec,
        layers=layers,
    )
    return [
        tf.IndexedSlices(v, i, tf.constant(shape, tf.int64))
        for v, i, shape in zip(values, indices, shapes, strict=True)
    ]
