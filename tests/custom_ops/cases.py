"""Inputs for the codecs, and the same calls on the library and on the oracle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.bits import assert_same_bits
from tests.custom_ops import native
from tests.custom_ops.native import (
    CODE_BITS,
    NAMES,
    AnyCodec,
    Codec,
    EightBit,
    Levels,
    Library,
    OneBit,
)
from tests.oracles import codecs as oracle

Array = npt.NDArray[Any]
Targets = Callable[[], Iterator[Library]]  # what the fixture `on_each_target` is

FLOAT32 = np.dtype(np.float32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [FLOAT32, np.dtype(np.float16), BFLOAT16]
THRESHOLD = 0.5
GUARD = 64  # elements before and after an output

CODECS = [*Codec, *OneBit, *Levels, *EightBit]
FIXED = [Codec.FIXED, OneBit.FIXED]
each_codec = pytest.mark.parametrize(
    "codec", CODECS, ids=lambda codec: f"{NAMES[codec]}-{codec.name.lower()}"
)
AUTOMATIC: list[AnyCodec] = [OneBit.AUTO, Codec.AUTO, *Levels, *EightBit]
# Each codec with the codec of its sums: the same, or a finer one.
SUMS: list[tuple[AnyCodec, AnyCodec]] = [
    *((codec, codec) for codec in AUTOMATIC),
    (OneBit.AUTO, Levels.THREE_BIT),
    (Codec.AUTO, Levels.THREE_BIT),
    (Levels.THREE_BIT, Levels.FOUR_BIT),
]
each_auto = pytest.mark.parametrize("codec", AUTOMATIC, ids=NAMES.get)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@dataclasses.dataclass
class Message:
    codes: Array
    scales: Array
    residual: Array

    def assert_equals(self, other: Message) -> None:
        assert_same_bits(self.codes, other.codes)
        assert_same_bits(self.scales, other.scales)
        assert_same_bits(self.residual, other.residual)


def parts_of(messages: list[Message]) -> tuple[list[Array], list[Array]]:
    return [message.codes for message in messages], [message.scales for message in messages]


class Guarded:
    """An array between guard bytes that must stay as they are."""

    def __init__(self, size: int, dtype: npt.DTypeLike, shift: int = 0) -> None:
        """`shift` elements move the array off the alignment that it would have."""
        dtype = np.dtype(dtype)
        raw = np.full((size + 2 * GUARD) * dtype.itemsize + 128, 0xA5, np.uint8)
        start = -raw.ctypes.data % 64 + (GUARD + shift) * dtype.itemsize
        self._before = raw[:start]
        self._after = raw[start + size * dtype.itemsize :]
        self.array: Array = raw[start : start + size * dtype.itemsize].view(dtype)

    def check(self) -> Array:
        assert (self._before == 0xA5).all()
        assert (self._after == 0xA5).all()
        return self.array.copy()


class Outputs:
    """The arrays that an encoder writes: residuals, codes and scales."""

    def __init__(self, codec: AnyCodec, size: int, kept: Array, in_place: bool, shift: int) -> None:
        blocks = native.num_blocks(size)
        self._residual = Guarded(kept.size, kept.dtype, shift)
        if in_place:
            self._residual.array[:] = kept
        self._codes = Guarded(blocks * native.code_bytes(codec), np.uint8, shift)
        self._scales = Guarded(blocks if native.has_scales(codec) else 0, np.uint16, shift)
        after = self._residual.array
        before = after if in_place else kept
        self.arrays = before, after, self._codes.array, self._scales.array

    def message(self) -> Message:
        return Message(self._codes.check(), self._scales.check(), self._residual.check())


def encode(
    library: Library,
    codec: AnyCodec,
    gradient: Array,
    residual: Array,
    threshold: float = THRESHOLD,
    in_place: bool = True,
    shift: int = 0,
) -> Message:
    shifted = Guarded(gradient.size, gradient.dtype, shift)
    outputs = Outputs(codec, gradient.size, residual, in_place, shift)
    shifted.array[:] = gradient
    before = residual.copy()
    library.encode(codec, shifted.array, *outputs.arrays, threshold)
    assert_same_bits(residual, before)
    assert_same_bits(shifted.check(), gradient)
    return outputs.message()


def oracle_encode(
    codec: AnyCodec, gradient: Array, residual: Array, threshold: float = THRESHOLD
) -> Message:
    fixed = threshold if codec in FIXED else None
    return Message(*oracle.encode(CODE_BITS[codec], gradient, residual, threshold=fixed))


def decode_sum(
    library: Library,
    codec: AnyCodec,
    messages: list[Message],
    size: int,
    dtype: np.dtype[Any],
    threshold: float = THRESHOLD,
    shift: int = 0,
) -> Array:
    result = Guarded(size, dtype, shift)
    library.decode_sum(codec, *parts_of(messages), result.array, threshold)
    return result.check()


def oracle_decode_sum(
    codec: AnyCodec,
    messages: list[Message],
    size: int,
    dtype: np.dtype[Any],
    threshold: float = THRESHOLD,
) -> Array:
    fixed = threshold if codec in FIXED else None
    return oracle.decode_sum(CODE_BITS[codec], *parts_of(messages), size, dtype, fixed)


def random_pair(rng: np.random.Generator, size: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """A gradient whose size differs from block to block, some of it special, and a residual."""
    values = (
        rng.standard_normal(size)
        * 2.0 ** rng.integers(-12, 4, native.num_blocks(size)).repeat(native.BLOCK_SIZE)[:size]
    )
    special = np.array([0.0, -0.0, THRESHOLD, -THRESHOLD, 1e-40, -1e-45, 1e38, np.inf, np.nan])
    # Two thirds of the blocks are left without special values: they take other paths.
    chosen = (rng.random(size) < 0.05) & (np.arange(size) // native.BLOCK_SIZE % 3 == 0)
    with np.errstate(over="ignore"):
        gradient = np.where(chosen, rng.choice(special, size), values).astype(dtype)
    return gradient, random_residual(rng, size)


def reencode(
    library: Library,
    codec: AnyCodec,
    messages: list[Message],
    gradient: Array,
    residual: Array,
    in_place: bool = True,
    shift: int = 0,
    sum_codec: AnyCodec | None = None,
) -> Message:
    of_sum = sum_codec or codec
    outputs = Outputs(of_sum, gradient.size, residual, in_place, shift)
    assert library.reencode(codec, of_sum, *parts_of(messages), gradient, *outputs.arrays)
    return outputs.message()


def oracle_reencode(
    codec: AnyCodec,
    messages: list[Message],
    gradient: Array,
    residual: Array,
    sum_codec: AnyCodec | None = None,
) -> Message:
    total = zeros(gradient.size)
    if messages:
        total = oracle_decode_sum(codec, messages, gradient.size, FLOAT32)
    return Message(*oracle.encode(CODE_BITS[sum_codec or codec], gradient, residual, total))


def count(
    library: Library, codec: AnyCodec, messages: list[Message], bits: int, shift: int = 0
) -> Array:
    blocks = messages[0].codes.size // native.code_bytes(codec)
    counts = Guarded(blocks * native.BLOCK_SIZE * bits // 8, np.uint8, shift)
    assert library.count(codec, *parts_of(messages), bits, counts.array)
    return counts.check()


def oracle_count(codec: AnyCodec, messages: list[Message], bits: int) -> Array:
    return oracle.count(CODE_BITS[codec], *parts_of(messages), bits)


class Parity:
    """The codecs with each target, which have to give the oracle's bits."""

    def __init__(self, on_each_target: Targets) -> None:
        self.on_each_target = on_each_target

    def encode(
        self,
        codec: AnyCodec,
        gradient: Array,
        residual: Array,
        threshold: float = THRESHOLD,
        options: Iterable[tuple[bool, int]] = ((True, 0),),
    ) -> Message:
        """The message. Options are whether residuals are written in place, and a shift."""
        expected = oracle_encode(codec, gradient, residual, threshold)
        for library in self.on_each_target():
            for each in options:
                encode(library, codec, gradient, residual, threshold, *each).assert_equals(expected)
        return expected

    def decode_sum(
        self,
        codec: AnyCodec,
        messages: list[Message],
        size: int,
        dtype: np.dtype[Any] = FLOAT32,
        threshold: float = THRESHOLD,
        shifts: Iterable[int] = (0,),
    ) -> Array:
        expected = oracle_decode_sum(codec, messages, size, dtype, threshold)
        for library in self.on_each_target():
            for shift in shifts:
                total = decode_sum(library, codec, messages, size, dtype, threshold, shift)
                assert_same_bits(total, expected)
        return expected

    def reencode(
        self,
        codec: AnyCodec,
        messages: list[Message],
        gradient: Array,
        residual: Array,
        sum_codec: AnyCodec | None = None,
        options: Iterable[tuple[bool, int]] = ((True, 0),),
    ) -> Message:
        arguments = codec, messages, gradient, residual
        expected = oracle_reencode(*arguments, sum_codec)
        for library in self.on_each_target():
            for each in options:
                reencode(library, *arguments, *each, sum_codec).assert_equals(expected)
        return expected

    def count(
        self, codec: AnyCodec, messages: list[Message], bits: int, shifts: Iterable[int] = (0,)
    ) -> Array:
        expected = oracle_count(codec, messages, bits)
        for library in self.on_each_target():
            for shift in shifts:
                assert_same_bits(count(library, codec, messages, bits, shift), expected)
        return expected


def zeros(size: int) -> Array:
    return np.zeros(size, np.float32)


def random_residual(rng: np.random.Generator, size: int) -> Array:
    return (0.1 * rng.standard_normal(size)).astype(np.float32)


def hostile_messages(
    rng: np.random.Generator, codec: AnyCodec, replicas: int, size: int
) -> list[Message]:
    """Random bytes, which may be any code and any scale."""
    blocks = native.num_blocks(size)
    code_bytes, scales = blocks * native.code_bytes(codec), blocks * native.has_scales(codec)
    return [
        Message(
            rng.integers(0, 256, code_bytes, np.uint8),
            rng.integers(0, 65_536, scales, np.uint16),
            zeros(0),
        )
        for _ in range(replicas)
    ]
