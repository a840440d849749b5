"""The two-bit codecs, in NumPy: the reference for every implementation.

Independent of the C++: it shares no code and no table with it. All arithmetic is in float32, each
operation rounded to nearest even. A gradient is float32, float16 or `ml_dtypes.bfloat16`; a
residual is float32. Codes are uint8, 32 bytes a block, scales the bits of bfloat16, one a block.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BLOCK_SIZE = 128

ZERO, NOT_FINITE, MINUS, PLUS = 0b00, 0b01, 0b10, 0b11

MAX_MAGNITUDE = np.float32(2.0**120)
MIN_MAGNITUDE = np.float32(2.0**-126)
SCALE_FACTOR = np.float32(2) / np.float32(3)
NAN = np.array(0x7FC00000, np.uint32).view(np.float32)[()]


def to_blocks(values: Array) -> Array:
    """[size] to [blocks, BLOCK_SIZE], with zeros after the end."""
    padded: Array = np.pad(values, (0, -values.size % BLOCK_SIZE))
    return padded.reshape(-1, BLOCK_SIZE)


def pack(codes: Array) -> Array:
    """Codes, one an element, to bytes: whole blocks, the first element on top."""
    quads: Array = to_blocks(codes.astype(np.uint8)).reshape(-1, 4)
    return quads[:, 0] << 6 | quads[:, 1] << 4 | quads[:, 2] << 2 | quads[:, 3]


def unpack(packed: Array, size: int) -> Array:
    """The codes of the first `size` elements, one an element."""
    quads = np.stack([packed >> 6, packed >> 4, packed >> 2, packed], axis=-1) & 0b11
    return quads.reshape(-1)[:size]


def bfloat16_bits(values: Array) -> Array:
    """Rounds finite float32 to the bits of bfloat16, nearest even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    kept, dropped = bits >> 16, bits & 0xFFFF
    up = (dropped > 0x8000) | ((dropped == 0x8000) & (kept & 1 == 1))
    return (kept + up).astype(np.uint16)


def bfloat16_values(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def tree_sum(blocks: Array) -> Array:
    """Sums each row of [blocks, BLOCK_SIZE] pairwise, over one bit of the index after the other."""
    tree = blocks.astype(np.float32).reshape((-1,) + (2,) * 7)
    remaining = [6, 5, 4, 3, 2, 1, 0]  # the index bit of axis 1, 2, ...
    for bit in (4, 5, 6, 3, 2, 1, 0):
        axis = 1 + remaining.index(bit)
        tree = np.take(tree, 0, axis) + np.take(tree, 1, axis)
        remaining.remove(bit)
    return tree


def finite_sum(gradient: Array, *others: Array) -> tuple[Array, Array]:
    """p = gradient + others, in their order, and which elements are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        p = gradient.astype(np.float32)
        for other in others:
            p = p + other
        return p, np.abs(p) < MAX_MAGNITUDE


def encode_fixed(gradient: Array, residual: Array, threshold: float) -> tuple[Array, Array, Array]:
    """Returns the codes, no scales, and the new residual."""
    tau = np.float32(threshold)
    p, finite = finite_sum(gradient, residual)
    plus = finite & (p >= tau)
    minus = finite & (p <= -tau)
    codes = np.select([~finite, plus, minus], [NOT_FINITE, PLUS, MINUS], ZERO)
    with np.errstate(over="ignore", invalid="ignore"):
        new = np.select([~finite, plus, minus], [residual, p - tau, p + tau], p)
    return pack(codes), np.zeros(0, np.uint16), new.astype(np.float32)


def encode_auto(gradient: Array, residual: Array, *addends: Array) -> tuple[Array, Array, Array]:
    """Returns the codes, the scales and the new residual."""
    size = gradient.size
    p, finite = finite_sum(gradient, residual, *addends)
    p_blocks = to_blocks(np.where(finite, p, np.float32(0)))
    magnitude = np.abs(p_blocks)

    scaled = SCALE_FACTOR * magnitude.max(axis=1)
    scales = bfloat16_bits(np.where(scaled < 2 * MIN_MAGNITUDE, np.float32(0), scaled))
    scale = bfloat16_values(scales)[:, None]
    send = (magnitude >= scale / 2) & (scale > 0)

    plus = (send & (p_blocks > 0)).reshape(-1)[:size]
    minus = (send & (p_blocks < 0)).reshape(-1)[:size]
    codes = np.select([~finite, plus, minus], [NOT_FINITE, PLUS, MINUS], ZERO)
    below = (p_blocks - scale).reshape(-1)[:size]
    above = (p_blocks + scale).reshape(-1)[:size]
    new = np.select([~finite, plus, minus], [residual, below, above], p)
    return pack(codes), scales, new.astype(np.float32)


def rounded(sums: Array, dtype: npt.DTypeLike) -> Array:
    """Rounds float32 to `dtype`; every NaN becomes the one positive quiet NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.isnan(sums), NAN, sums).astype(np.float32).astype(dtype)


def decode_sum_fixed(
    codes: Sequence[Array], size: int, threshold: float, dtype: npt.DTypeLike
) -> Array:
    counts, finite = _count(codes, size)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = counts.astype(np.float32) * np.float32(threshold)
    return rounded(np.where(finite, sums, NAN), dtype)


def decode(codes: Array, scales: Array, size: int) -> Array:
    """The float32 values of one message."""
    scale = np.repeat(bfloat16_values(scales), BLOCK_SIZE)[:size]
    code = unpack(codes, size)
    values = np.select(
        [code == PLUS, code == MINUS, code == NOT_FINITE], [scale, -scale, NAN], np.float32(0)
    )
    return values.astype(np.float32)


# ---- Counts: the sum of messages with a fixed threshold ----------------------------


def count_bits(replicas: int) -> int:
    """The bits of a count: [-replicas, replicas] and one more value for "not finite"."""
    return next(bits for bits in (4, 8, 16) if 2 * replicas + 2 <= 2**bits)


def count(codes: Sequence[Array], bits: int) -> Array:
    """The bytes of the counts of whole blocks."""
    return pack_counts(*_count(codes, codes[0].size * 4), bits)


def _count(codes: Sequence[Array], size: int) -> tuple[Array, Array]:
    """The sum of the elements in units of the threshold, and which ones are finite."""
    code = np.array([unpack(packed, size) for packed in codes])
    counts = (code == PLUS).sum(axis=0) - (code == MINUS).sum(axis=0)
    return counts, (code != NOT_FINITE).all(axis=0)


def pack_counts(counts: Array, finite: Array, bits: int) -> Array:
    """The bytes of counts of `bits` bits, some of them "not finite"."""
    counts = np.where(finite, counts, -(2 ** (bits - 1)))
    if bits == 4:
        nibbles = (counts % 16).astype(np.uint8).reshape(-1, 2)
        return np.asarray(nibbles[:, 0] * 16 + nibbles[:, 1], np.uint8)
    return counts.astype(f"<i{bits // 8}").view(np.uint8)


def decode_counts(
    packed: Array, bits: int, size: int, threshold: float, dtype: npt.DTypeLike
) -> Array:
    """The values of the first `size` counts."""
    if bits == 4:
        nibbles = np.stack([packed // 16, packed % 16], axis=-1).reshape(-1).astype(np.int64)
        counts = np.where(nibbles < 8, nibbles, nibbles - 16)
    else:
        counts = packed.view(f"<i{bits // 8}").astype(np.int64)
    counts = counts[:size]
    with np.errstate(over="ignore"):
        values = counts.astype(np.float32) * np.float32(threshold)
    return rounded(np.where(counts == -(2 ** (bits - 1)), NAN, values), dtype)
