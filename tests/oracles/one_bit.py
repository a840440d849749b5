"""The one-bit codecs, in NumPy: the reference for every implementation.

As in `tests.oracles.two_bit`, of which it takes blocks, sums over them and roundings, with 16 bytes
of codes a block.
"""

from collections.abc import Sequence

import numpy as np

from tests.oracles.two_bit import (
    BLOCK_SIZE,
    Array,
    bfloat16_bits,
    bfloat16_values,
    finite_sum,
    pack_counts,
    to_blocks,
    tree_sum,
)

ONE, NAN = 0x3F80, 0x7FC0  # as bfloat16


def _encode(
    p: Array, finite: Array, residual: Array, plus: Array, scales: Array
) -> tuple[Array, Array, Array]:
    """Sends signs and scales where a whole block is finite. Returns codes, scales, residual."""
    size = p.size
    good = to_blocks(finite).sum(axis=1) == to_blocks(np.ones(size, np.bool_)).sum(axis=1)
    scales = np.where(good, scales, NAN).astype(np.uint16)
    elements = np.repeat(good, BLOCK_SIZE)[:size]
    scale = np.repeat(bfloat16_values(scales), BLOCK_SIZE)[:size]
    with np.errstate(over="ignore", invalid="ignore"):
        kept = np.where(plus, p - scale, p + scale)
    new = np.where(elements, kept, residual).astype(np.float32)
    return np.packbits(to_blocks(plus & elements), axis=1).reshape(-1), scales, new


def encode_fixed(gradient: Array, residual: Array, threshold: float) -> tuple[Array, Array, Array]:
    p, finite = finite_sum(gradient, residual)
    scales = np.full(to_blocks(p).shape[0], ONE, np.uint16)
    with np.errstate(invalid="ignore"):
        return _encode(p, finite, residual, p > np.float32(threshold), scales)


def encode_auto(gradient: Array, residual: Array, *addends: Array) -> tuple[Array, Array, Array]:
    p, finite = finite_sum(gradient, residual, *addends)
    magnitudes = to_blocks(np.abs(np.where(finite, p, np.float32(0))))
    count = to_blocks(np.ones(p.size, np.bool_)).sum(axis=1).astype(np.float32)
    scales = bfloat16_bits(tree_sum(magnitudes) / count)
    with np.errstate(invalid="ignore"):
        return _encode(p, finite, residual, p >= 0, scales)


def decode(codes: Array, scales: Array, size: int) -> Array:
    """The float32 values of one message."""
    scale = np.repeat(bfloat16_values(scales), BLOCK_SIZE)[:size]
    plus = np.unpackbits(codes)[:size].astype(np.bool_)
    return np.where(plus, scale, -scale)


def count(codes: Sequence[Array], scales: Sequence[Array], bits: int) -> Array:
    """The bytes of the counts of whole blocks of the fixed codec."""
    plus = np.array([np.unpackbits(packed) for packed in codes], np.int64)
    finite = ~np.isnan([bfloat16_values(scale) for scale in scales]).any(axis=0)
    return pack_counts((2 * plus - 1).sum(axis=0), np.repeat(finite, BLOCK_SIZE), bits)
