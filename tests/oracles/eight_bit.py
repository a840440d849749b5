"""The codec of eight bits, in NumPy: the reference for every implementation.

As in `tests.oracles.two_bit`, of which it takes blocks and roundings, with 128 bytes of codes a
block.
"""

import numpy as np

from tests.oracles.two_bit import (
    BLOCK_SIZE,
    MIN_MAGNITUDE,
    NAN,
    Array,
    bfloat16_bits,
    bfloat16_values,
    finite_sum,
    to_blocks,
)

MOST, NOT_FINITE = np.float32(127), -128


def encode(gradient: Array, residual: Array, *addends: Array) -> tuple[Array, ...]:
    """Returns the codes, the scales and the new residual."""
    size = gradient.size
    p, finite = finite_sum(gradient, residual, *addends)
    good = np.where(finite, p, np.float32(0))
    scaled = np.abs(to_blocks(good)).max(axis=1) / MOST
    scales = bfloat16_bits(np.where(scaled < MIN_MAGNITUDE, np.float32(0), scaled))
    scale = bfloat16_values(scales)
    factor = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    with np.errstate(under="ignore"):
        # The nearest whole number, the even one of two; plus zero, where that is minus zero.
        whole = np.rint(good * np.repeat(factor, BLOCK_SIZE)[:size]) + np.float32(0)
        kept = good - whole * np.repeat(scale, BLOCK_SIZE)[:size]
    codes = np.where(finite, whole, NOT_FINITE).astype(np.int8).view(np.uint8)
    return to_blocks(codes).reshape(-1), scales, np.where(finite, kept, residual)


def decode(codes: Array, scales: Array, size: int) -> Array:
    """The float32 values of one message."""
    whole = codes.view(np.int8)[:size].astype(np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        values = whole * np.repeat(bfloat16_values(scales), BLOCK_SIZE)[:size]
    return np.where(whole == NOT_FINITE, NAN, values)
