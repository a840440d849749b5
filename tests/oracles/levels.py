"""The codecs with several levels, in NumPy: the reference for every implementation.

As in `tests.oracles.two_bit`, of which it takes blocks and roundings, with 48 or 64 bytes of codes
a block.
"""

import numpy as np

from tests.oracles.two_bit import (
    BLOCK_SIZE,
    NAN,
    Array,
    bfloat16_bits,
    bfloat16_values,
    finite_sum,
    to_blocks,
)

MIN_SCALE = np.float32(2.0**-118)
# By the bits of a code: the levels, as fractions of the scale, with zero in front.
LEVELS = {
    3: np.array([0, 5 / 32, 1 / 2, 1]),
    4: np.array([0, 1 / 32, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1]),
}
# The scale, as a part of the largest magnitude.
SCALE_FACTOR = {3: np.float32(1), 4: np.float32(1) / np.float32(1.125)}


def pack(codes: Array, bits: int) -> Array:
    """Codes, one an element, to bytes: whole blocks, plane after plane, the lowest bits first."""
    blocks = to_blocks(codes.astype(np.uint8))
    planes = [np.packbits(blocks >> i & 1, axis=1, bitorder="little") for i in range(bits)]
    return np.concatenate(planes, axis=1).reshape(-1)


def unpack(packed: Array, size: int, bits: int) -> Array:
    """The codes of the first `size` elements, one an element."""
    planes = packed.reshape(-1, bits, BLOCK_SIZE // 8)
    ones = np.unpackbits(planes, axis=2, bitorder="little")
    codes: Array = (ones << np.arange(bits, dtype=np.uint8)[:, None]).sum(axis=1, dtype=np.uint8)
    return codes.reshape(-1)[:size]


def encode(gradient: Array, residual: Array, *addends: Array, bits: int) -> tuple[Array, ...]:
    """Returns the codes, the scales and the new residual."""
    size = gradient.size
    p, finite = finite_sum(gradient, residual, *addends)
    good = np.where(finite, p, np.float32(0))
    scaled = SCALE_FACTOR[bits] * np.abs(to_blocks(good)).max(axis=1)
    scales = bfloat16_bits(np.where(scaled < MIN_SCALE, np.float32(0), scaled))
    scale = np.repeat(bfloat16_values(scales), BLOCK_SIZE)[:size]

    # The nearest level; of two that are as near, the larger one. Exact in double precision.
    levels = scale[:, None].astype(np.float64) * LEVELS[bits]
    distances = np.abs(np.abs(good)[:, None].astype(np.float64) - levels)
    number = levels.shape[1] - 1 - np.argmin(distances[:, ::-1], axis=1)
    number = np.where(scale > 0, number, 0)
    minus = (number > 0) & (good < 0)
    level = np.take_along_axis(levels, number[:, None], axis=1)[:, 0].astype(np.float32)
    kept = good - np.where(minus, -level, level)

    not_finite = 1 << (bits - 1)
    codes = np.where(finite, number + np.where(minus, not_finite, 0), not_finite)
    new = np.where(finite, kept, residual).astype(np.float32)
    return pack(codes, bits), scales, new


def decode(codes: Array, scales: Array, size: int, bits: int) -> Array:
    """The float32 values of one message."""
    scale = np.repeat(bfloat16_values(scales), BLOCK_SIZE)[:size]
    code = unpack(codes, size, bits)
    number, minus = code & ((1 << (bits - 1)) - 1), code >> (bits - 1) == 1
    with np.errstate(invalid="ignore", under="ignore"):
        level = np.where(number > 0, scale * LEVELS[bits].astype(np.float32)[number], np.float32(0))
    return np.where(minus & (number == 0), NAN, np.where(minus, -level, level)).astype(np.float32)
