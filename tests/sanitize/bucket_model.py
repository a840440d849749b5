"""A replica's bucket of gradients and residuals, and what the NumPy oracles encode of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tests.oracles import two_bit as oracle
from tests.sanitize.wire_model import HEADER, Array, Family, Rng, bucket_of, runs_of

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def same_bits(actual: Any, expected: Array) -> None:
    actual = np.asarray(actual)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if actual.tobytes() != expected.tobytes():
        np.testing.assert_array_equal(actual, expected)


def values(rng: Rng, size: int, dtype: npt.DTypeLike) -> Array:
    result = rng.standard_normal(size).astype(np.float32)
    result[rng.random(size) < 0.01] = [np.nan, np.inf, -np.inf, 1e38][rng.integers(4)]
    with np.errstate(over="ignore"):
        return result.astype(dtype)


@dataclasses.dataclass
class Bucket:
    """A replica's gradients and residuals."""

    sizes: list[int]
    gradients: list[Array]
    before: list[Array]
    residuals: list[tf.Variable]
    others: list[tf.Variable] = dataclasses.field(default_factory=list)

    @staticmethod
    def random(rng: Rng) -> Bucket:
        sizes, _ = bucket_of(rng)
        dtype = DTYPES[rng.integers(3)]
        before = [values(rng, size, np.float32) for size in sizes]
        residuals = [tf.Variable(residual) for residual in before]
        return Bucket(sizes, [values(rng, size, dtype) for size in sizes], before, residuals)

    def blocks(self) -> int:
        return sum(map(oracle.num_blocks, self.sizes))

    def arguments(self) -> dict[str, Any]:
        handles = [residual.handle for residual in self.residuals]
        return {"gradients": self.gradients, "residuals": handles}

    def encode(
        self,
        family: Family,
        shard: int,
        shard_blocks: int,
        after: list[Array],
        added: list[tuple[Array, Array]] | None = None,
        of_added: Family | None = None,
    ) -> Array:
        """Returns the message of a shard, which `family` encodes, and sets its residuals.

        The messages `added`, which `of_added` has encoded, are added first.
        """
        message = family.format()
        row = np.zeros(message.words(shard_blocks), np.int64)
        row.view(np.uint8)[: HEADER.size] = list(HEADER.pack(*message.header(shard_blocks)))
        codes, scales = message.parts(row, shard_blocks)
        first = min(self.blocks(), shard * shard_blocks)
        last = min(self.blocks(), first + shard_blocks)
        for i, elements, blocks in runs_of(self.sizes, first, last):
            of_codes = slice(blocks.start * 16 * message.bits, blocks.stop * 16 * message.bits)
            addends = []
            if added is not None:
                assert of_added is not None
                size, width = elements.stop - elements.start, 16 * of_added.format().bits
                mine = slice(blocks.start * width, blocks.stop * width)
                parts = [(c[mine], s[blocks]) for c, s in added]
                nothing = np.zeros(size, np.float32)
                addends.append(of_added.sum(parts, size, np.float32) if parts else nothing)
            code, scale, after[i][elements] = family.encode(
                self.gradients[i][elements], self.before[i][elements], *addends
            )
            codes[of_codes] = code
            if message.scales:
                scales[blocks] = scale
        return row

    def check(self, after: list[Array]) -> None:
        for residual, expected in zip(self.residuals, after, strict=True):
            same_bits(residual, expected)
