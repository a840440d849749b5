"""Shared by the tests of the codecs' ops: each codec, buckets, and the parts of messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases, matrix
from tests.custom_ops import cases as codec_cases
from tests.custom_ops import native
from tests.custom_ops.cases import Message
from tests.custom_ops.native import Codec, Levels, OneBit
from tests.oracles import two_bit as oracle
from tf_gc.ops import count, decode_shards, encode, reencode

Array = native.Array
Replica = tuple[list[tf.Tensor], list[tf.Variable]]
InvalidArgument = tf.errors.InvalidArgumentError

HEADER_BYTES = 16
BLOCK = 128
SHAPES: list[tuple[int, ...]] = [(3, 50), (0,), (128,), (), (1, 129), (2000,)]  # 22 blocks


@dataclasses.dataclass(frozen=True)
class Format:
    """A codec by its name for the ops, with a threshold or automatic scales."""

    codec: str
    threshold: float | str

    @property
    def automatic(self) -> bool:
        return self.threshold == "auto"

    @property
    def native(self) -> native.AnyCodec:
        fixed, auto = {
            "two_bit": (Codec.FIXED, Codec.AUTO),
            "one_bit": (OneBit.FIXED, OneBit.AUTO),
            "three_bit": (None, Levels.THREE_BIT),
            "four_bit": (None, Levels.FOUR_BIT),
        }[self.codec]
        codec = auto if self.automatic else fixed
        assert codec is not None
        return codec

    @property
    def number(self) -> float:
        """The threshold for the reference, which has none for automatic scales."""
        return 0.0 if isinstance(self.threshold, str) else self.threshold

    @property
    def code_bytes(self) -> int:
        return native.code_bytes(self.native)

    @property
    def scale_bytes(self) -> int:
        return 2 if native.has_scales(self.native) else 0

    @property
    def finer(self) -> Format:
        """The codec of sums that are rounded less; of four bits, the same."""
        return Format("three_bit" if self.codec in ("one_bit", "two_bit") else "four_bit", "auto")

    def words(self, blocks: int) -> int:
        """The int64 numbers of a message, which is padded to a multiple of 16 bytes."""
        return 2 * (1 + -(-blocks * (self.code_bytes + self.scale_bytes) // 16))

    def parts(self, row: tf.Tensor, blocks: int) -> tuple[Array, Array, Array]:
        """The codes and scales of a message, and what follows them."""
        data = np.asarray(row).view(np.uint8).reshape(-1)[HEADER_BYTES:]
        codes, rest = np.split(data, [blocks * self.code_bytes])
        scales, padding = np.split(rest, [blocks * self.scale_bytes])
        return codes, scales.view(np.uint16), padding

    def __str__(self) -> str:
        return f"{self.codec}-{self.threshold}"


FIXED = [Format("two_bit", 0.5), Format("one_bit", 0.5), Format("one_bit", 0.0)]
AUTO = [Format(codec, "auto") for codec in ("three_bit", "two_bit", "one_bit", "four_bit")]
DTYPES: list[Any] = [np.float16, np.float32, ml_dtypes.bfloat16]

# By default one of those that are counted in a scatter-gather, and one of those encoded again.
each_format = pytest.mark.parametrize(
    "form",
    [
        *(FIXED[0], AUTO[0]),
        *(pytest.param(form, marks=matrix) for form in [*FIXED[1:], *AUTO[1:]]),
    ],
    ids=str,
)
each_dtype = cases("dtype", *DTYPES)


def make_replica(
    shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: Any = np.float32, seed: int = 0
) -> Replica:
    random = np.random.default_rng(seed)
    gradients = [tf.constant(random.normal(size=shape).astype(dtype)) for shape in shapes]
    residuals = [tf.Variable(random.normal(size=shape).astype(np.float32)) for shape in shapes]
    return gradients, residuals


def copies_of(residuals: list[tf.Variable]) -> list[tf.Variable]:
    return [tf.Variable(residual) for residual in residuals]


def flat(tensor: Any) -> Array:
    """The elements of an array, a tensor or a variable."""
    return np.ravel(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


def in_blocks(tensors: Sequence[Any]) -> Array:
    """The bucket's elements in whole blocks, with zeros after the end of each tensor."""
    return np.concatenate([oracle.to_blocks(flat(tensor)).reshape(-1) for tensor in tensors])


def oracle_encode(form: Format, gradients: list[Any], residuals: list[Any]) -> Message:
    """The message of a bucket, with the residuals in whole blocks."""
    messages = [
        codec_cases.oracle_encode(form.native, flat(gradient), flat(residual), form.number)
        for gradient, residual in zip(gradients, residuals, strict=True)
    ]
    return Message(
        np.concatenate([message.codes for message in messages]),
        np.concatenate([message.scales for message in messages]),
        in_blocks([message.residual for message in messages]),
    )


def exchange(
    form: Format, replicas: list[Replica], sum_form: Format | None = None
) -> list[tf.Tensor]:
    """Runs both stages and returns the sums."""
    shards = len(replicas)
    of_sums = sum_form or form
    rows = [
        encode(*replica, form.codec, form.threshold, shards, rank if form.automatic else None)
        for rank, replica in enumerate(replicas)
    ]
    totals = []
    for rank, column in enumerate(tf.unstack(tf.stack(rows, axis=1))):
        if form.automatic:
            total = reencode(column, *replicas[rank], rank, shards, form.codec, of_sums.codec)
        else:
            total = count(column, shards, form.codec, form.threshold)
        totals.append(total)
    like = replicas[0][0]
    return decode_shards(
        totals, like, of_sums.codec, form.threshold, shards=shards, replicas=shards
    )
