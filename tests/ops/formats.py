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
from tests.custom_ops import native
from tests.custom_ops.native import CODE_BITS, NAMES, Array, Codec, EightBit, Levels, OneBit
from tests.oracles import two_bit as oracle

Replica = tuple[list[tf.Tensor], list[tf.Variable]]
InvalidArgument = tf.errors.InvalidArgumentError

HEADER_BYTES = 16
BLOCK = 128
SHAPES: list[tuple[int, ...]] = [(3, 50), (0,), (128,), (), (1, 129), (2000,)]  # 22 blocks


@dataclasses.dataclass(frozen=True)
class Format:
    """A codec with a threshold or automatic scales."""

    native: native.AnyCodec
    threshold: float | str = "auto"

    @property
    def codec(self) -> str:
        return NAMES[self.native]

    @property
    def automatic(self) -> bool:
        return self.threshold == "auto"

    @property
    def number(self) -> float:
        """The threshold for the reference, which has none for automatic scales."""
        return 0.0 if isinstance(self.threshold, str) else self.threshold

    @property
    def finer(self) -> Format:
        """The codec of sums that are rounded less; of four and eight bits, the same."""
        if CODE_BITS[self.native] > 3:
            return self
        few = self.codec in ("one_bit", "two_bit")
        return Format(Levels.THREE_BIT if few else Levels.FOUR_BIT)

    def sizes(self, blocks: int) -> tuple[int, int]:
        """The bytes of the codes and of the scales of a message."""
        scales = 2 * blocks if native.has_scales(self.native) else 0
        return blocks * native.code_bytes(self.native), scales

    def words(self, blocks: int) -> int:
        """The int64 numbers of a message, which is padded to a multiple of 16 bytes."""
        return 2 * (1 + -(-sum(self.sizes(blocks)) // 16))

    def parts(self, row: tf.Tensor, blocks: int) -> tuple[Array, Array, Array]:
        """The codes and scales of a message, and what follows them."""
        data = np.asarray(row).view(np.uint8).reshape(-1)[HEADER_BYTES:]
        codes, scales, padding = np.split(data, np.cumsum(self.sizes(blocks)))
        return codes, scales.view(np.uint16), padding

    def __str__(self) -> str:
        return f"{self.codec}-{self.threshold}"


FIXED = [Format(Codec.FIXED, 0.5), Format(OneBit.FIXED, 0.5), Format(OneBit.FIXED, 0.0)]
THREE_BIT, TWO_BIT, ONE_BIT, FOUR_BIT, EIGHT_BIT = AUTO = [
    Format(codec)
    for codec in (Levels.THREE_BIT, Codec.AUTO, OneBit.AUTO, Levels.FOUR_BIT, EightBit.AUTO)
]
DTYPES: list[Any] = [np.float16, np.float32, ml_dtypes.bfloat16]

# By default one of those that are counted in a scatter-gather, and one of those encoded again.
each_format = pytest.mark.parametrize(
    "form",
    [FIXED[0], AUTO[0], *(pytest.param(f, marks=matrix) for f in [*FIXED[1:], *AUTO[1:]])],
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
    return np.concatenate([oracle.to_blocks(flat(each)).reshape(-1) for each in tensors])
