"""Each codec by the bits of its codes, with a fixed threshold or, for `None`, automatic scales."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tests.oracles import eight_bit, levels, one_bit, two_bit
from tests.oracles.two_bit import Array, rounded


def encode(
    bits: int, gradient: Array, residual: Array, *addends: Array, threshold: float | None = None
) -> tuple[Array, ...]:
    """Returns the codes, the scales, if there are any, and the new residual."""
    if bits == 8:
        return eight_bit.encode(gradient, residual, *addends)
    if bits > 2:
        return levels.encode(gradient, residual, *addends, bits=bits)
    codec = one_bit if bits == 1 else two_bit
    if threshold is None:
        return codec.encode_auto(gradient, residual, *addends)
    return codec.encode_fixed(gradient, residual, threshold)


def decode(bits: int, codes: Array, scales: Array, size: int) -> Array:
    """The float32 values of one message with scales."""
    if bits == 8:
        return eight_bit.decode(codes, scales, size)
    if bits > 2:
        return levels.decode(codes, scales, size, bits)
    return (one_bit if bits == 1 else two_bit).decode(codes, scales, size)


def decode_sum(
    bits: int,
    codes: Sequence[Array],
    scales: Sequence[Array],
    size: int,
    dtype: npt.DTypeLike,
    threshold: float | None = None,
) -> Array:
    """The sum of the messages, added in their order in float32."""
    if bits == 2 and threshold is not None:
        return two_bit.decode_sum_fixed(codes, size, threshold, dtype)
    first, *others = (decode(bits, *one, size) for one in zip(codes, scales, strict=True))
    with np.errstate(over="ignore", invalid="ignore"):
        for other in others:
            first = first + other
    return rounded(first, dtype)


def count(bits: int, codes: Sequence[Array], scales: Sequence[Array], width: int) -> Array:
    """The bytes of the counts, in `width` bits, of whole blocks of a fixed codec."""
    return one_bit.count(codes, scales, width) if bits == 1 else two_bit.count(codes, width)
