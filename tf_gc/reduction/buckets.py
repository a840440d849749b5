"""Buckets: groups of gradients that travel in one message."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tf_gc.codecs import Codec

# Bytes of gradient in a bucket, unless the user gives a size (benchmarks/step_time.py). This is
# small enough that the first bucket is on its way early and its codes stay in the cache, and large
# enough that an op's fixed cost does not matter.
_DEFAULT_BYTES = 4 << 20

# A gradient is small if it fits into a bucket this many times; small gradients have buckets of
# their own. TensorFlow's executor runs the op that became ready last first. So it leaves the
# gradients of biases, which nothing else in backpropagation waits for, to the end, and a large
# gradient in the same bucket would wait for them.
_SMALL = 16


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Tensors of one dtype that are encoded into one message.

    Attributes:
      indices: positions in the list of gradients.
      dtype: the gradients' dtype.
    """

    indices: tuple[int, ...]
    dtype: tf.DType


@dataclasses.dataclass(frozen=True)
class Grouping:
    """How a list of gradients is reduced.

    Attributes:
      buckets: what is compressed, in the order in which backpropagation produces it.
      bypass: positions of the gradients that the stock ops reduce.
    """

    buckets: tuple[Bucket, ...]
    bypass: tuple[int, ...]


def group(
    codec: Codec, gradients: Sequence[tuple[tf.DType, int] | None], bucket_bytes: int = 0
) -> Grouping:
    """Groups gradients into buckets.

    A gradient is never split. A gradient of `bucket_bytes` or more has a bucket to itself, so that
    it need not wait for others. Small gradients travel together, apart from the rest.

    Args:
      codec: decides which gradients are compressed.
      gradients: dtype and number of elements of each gradient, in the order of the
        variables; `None` for a gradient that cannot be compressed (sparse).
      bucket_bytes: bytes of gradient at which a bucket is full; 0 for the default.
    """
    limit = bucket_bytes or _DEFAULT_BYTES
    buckets: list[Bucket] = []
    bypass: list[int] = []
    open_buckets: dict[tuple[tf.DType, bool], tuple[list[int], int]] = {}
    # Backpropagation reaches the last variable first.
    for index in reversed(range(len(gradients))):
        gradient = gradients[index]
        if gradient is None or not codec.compresses(*gradient):
            bypass.append(index)
            continue
        dtype, elements = gradient
        size = elements * dtype.size
        if size >= limit:
            buckets.append(Bucket((index,), dtype))
            continue
        kind = (dtype, size * _SMALL <= limit)
        indices, total = open_buckets.pop(kind, ([], 0))
        indices.append(index)
        total += size
        if total >= limit:
            buckets.append(Bucket(tuple(indices), dtype))
        else:
            open_buckets[kind] = (indices, total)
    buckets += [Bucket(tuple(indices), dtype) for (dtype, _), (indices, _) in open_buckets.items()]
    return Grouping(tuple(buckets), tuple(sorted(bypass)))
