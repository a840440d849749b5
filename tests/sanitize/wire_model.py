"""A model of the wire format: right messages, changed messages, and what is wrong with them.

It shares nothing with the C++ and takes what messages say from the NumPy oracles.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tests.oracles import levels as oracle_levels
from tests.oracles import one_bit as oracle_one_bit
from tests.oracles import two_bit as oracle

Array = npt.NDArray[Any]
Rng = np.random.Generator

HEADER = struct.Struct("<HBBIq")
# What errors say of a header: the name of a field, and the number that was found.
FIELDS = ["the magic number {}", "wire version {}", "codec {}", "threshold", "blocks of {}"]
SHAPE = "messages must have the shape"
ROWS = "`messages` (must hold|holds no row)"
HUGE = [2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**59, 2**61 - 1, 2**62, 2**63 - 1]


@dataclasses.dataclass(frozen=True)
class Format:
    """What a message looks like. `unit` is the threshold, or what a count of 1 stands for."""

    codec: int
    bits: int
    scales: bool
    unit: float = 0.0

    def block_bytes(self) -> int:
        return 16 * self.bits + 2 * self.scales

    def words(self, blocks: int) -> int:
        return -(-(HEADER.size + blocks * self.block_bytes()) // 16) * 2

    def header(self, blocks: int) -> tuple[int, ...]:
        (bits,) = struct.unpack("<I", struct.pack("<f", self.unit))
        return 0x4347, 1, self.codec, bits, blocks

    def row(self, blocks: int, rng: Rng) -> Array:
        """A message with the right header and any codes and scales."""
        row = rng.integers(0, 256, self.words(blocks) * 8).astype(np.uint8)
        row[: HEADER.size] = np.frombuffer(HEADER.pack(*self.header(blocks)), np.uint8)
        return row.view(np.int64)

    def parts(self, row: Array, blocks: int) -> tuple[Array, Array]:
        """The bytes of the codes, and the bits of the scales."""
        body = row.view(np.uint8)[HEADER.size :]
        codes = 16 * self.bits * blocks
        return body[:codes], body[codes : codes + 2 * blocks * self.scales].view(np.uint16)


@dataclasses.dataclass(frozen=True)
class Family:
    """The ops of a codec with a threshold, or with automatic scales (None)."""

    name: str
    threshold: float | None

    def attributes(self) -> dict[str, Any]:
        automatic = self.threshold is None
        return {"codec": self.name, "automatic": automatic, "threshold": self.threshold or 0.0}

    def format(self) -> Format:
        if self.name == "two_bit":
            auto = self.threshold is None
            return Format(2 if auto else 1, 2, auto, self.threshold or 0.0)
        if self.name == "one_bit":
            return Format(7 if self.threshold is None else 6, 1, True, self.threshold or 0.0)
        return Format(5 + self.level_bits(), self.level_bits(), True)

    def level_bits(self) -> int:
        """The bits of a code, of a codec with several levels; 0 of other codecs."""
        return {"three_bit": 3, "four_bit": 4}.get(self.name, 0)

    def counts(self, replicas: int) -> Format:
        bits = oracle.count_bits(replicas)
        unit = self.threshold if self.name == "two_bit" else 1.0
        assert unit is not None
        return Format({4: 3, 8: 4, 16: 5}[bits], bits, False, unit)

    def encode(
        self, gradient: Array, residual: Array, *addends: Array
    ) -> tuple[Array, Array, Array]:
        """Codes, scales (of no length where there are none) and the new residual."""
        if bits := self.level_bits():
            codes, scales, new = oracle_levels.encode(gradient, residual, *addends, bits=bits)
            return codes, scales, new
        if self.threshold is None:
            auto = oracle_one_bit if self.name == "one_bit" else oracle
            return auto.encode_auto(gradient, residual, *addends)
        if self.name == "one_bit":
            return oracle_one_bit.encode_fixed(gradient, residual, self.threshold)
        codes, new = oracle.encode_fixed(gradient, residual, self.threshold)
        return codes, np.zeros(0, np.uint16), new

    def sum(self, parts: list[tuple[Array, Array]], size: int, dtype: npt.DTypeLike) -> Array:
        codes, scales = [part[0] for part in parts], [part[1] for part in parts]
        if self.name == "one_bit":
            return oracle_one_bit.decode_sum(codes, scales, size, dtype)
        if bits := self.level_bits():
            return oracle_levels.decode_sum(codes, scales, size, dtype, bits)
        if self.threshold is None:
            return oracle.decode_sum_auto(codes, scales, size, dtype)
        return oracle.decode_sum_fixed(codes, size, self.threshold, dtype)


FAMILIES = [
    Family("two_bit", None),
    Family("two_bit", 0.5),
    Family("two_bit", 2.0**-126),
    Family("one_bit", None),
    Family("one_bit", 0.0),
    Family("one_bit", -1.5),
    Family("three_bit", None),
    Family("four_bit", None),
]


def change_messages(tensors: list[Array], rng: Rng) -> list[Array]:
    """Changes one thing about the messages, or nothing."""
    tensors = [tensor.copy() for tensor in tensors]
    i = rng.integers(len(tensors))
    tensor = tensors[i]
    rows, words = tensor.shape
    what = rng.integers(20)  # from 13 on: nothing
    if what < 4 and rows:  # a field of a header
        row = tensor[rng.integers(rows)].view(np.uint8)
        header = list(HEADER.unpack(row[: HEADER.size].tobytes()))
        field = rng.integers(5)
        limit = [2**16, 2**8, 2**8, 2**32, 2**63][field]
        near = header[field] + int(rng.integers(-2, 3))
        header[field] = [near, int(rng.integers(limit)), limit - 1, 0][rng.integers(4)] % limit
        row[: HEADER.size] = np.frombuffer(HEADER.pack(*header), np.uint8)
    elif what < 6 and rows:  # a bit
        row = tensor[rng.integers(rows)].view(np.uint8)
        row[rng.integers(rng.choice([HEADER.size, row.size]))] ^= 1 << rng.integers(8)
    elif what == 6:
        tensors[i] = tensor[:, : rng.integers(words)]
    elif what == 7:
        tensors[i] = np.pad(tensor, [(0, 0), (0, rng.integers(1, 40))])
    elif what == 8:
        tensors[i] = tensor[rng.integers(rows + 1) :]
    elif what == 9:
        tensors.append(tensor[: rng.integers(rows + 1)])
    elif what == 10:
        shapes = [(rows * words,), (rows, words, 1), (1, rows, words), (words, rows)]
        tensors[i] = tensor.reshape(shapes[rng.integers(len(shapes))])
    elif what == 11:
        huge = HUGE[rng.integers(len(HUGE))] - int(rng.integers(2)) * 2
        shape = [(0, huge), (0, 0), (rows, 0)][rng.integers(3)]
        tensors[i] = tf.fill(tf.constant(shape, tf.int64), tf.constant(0, tf.int64))
    elif what == 12:
        tensors[i] = rng.integers(-(2**63), 2**63 - 1, tensor.shape)
    return tensors


def problems_of(
    tensors: list[Array], expected: Format, blocks: int, rows: int | None, unread: int = -1
) -> list[str]:
    """What is wrong with messages. `rows` is how many there have to be, None for any."""
    words = expected.words(blocks)
    if any(tensor.ndim != 2 or tensor.shape[1] != words for tensor in tensors):
        return [SHAPE, "a message has"]  # or what is wrong with another one
    all_rows = [row for tensor in tensors for row in tensor]
    problems = []
    if (rows is None and not all_rows) or (rows is not None and len(all_rows) != rows):
        problems.append(ROWS)
    for number, row in enumerate(all_rows):
        found = HEADER.unpack(row.view(np.uint8)[: HEADER.size].tobytes())
        differing = zip(FIELDS, found, expected.header(blocks), strict=True)
        if number != unread:
            problems += [name.format(value) for name, value, right in differing if value != right]
    return problems


def split(rows: list[Array], rng: Rng) -> list[Array]:
    """Rows as a list of tensors."""
    at = int(rng.integers(len(rows) + 1))
    parts = [rows[:at], rows[at:]]
    return [np.stack(part) for part in parts if part]


def bucket_of(rng: Rng) -> tuple[list[int], int]:
    sizes = [int(rng.integers(0, 300)) for _ in range(rng.integers(1, 4))]
    if rng.integers(10) == 0:
        sizes[0] = int(rng.integers(30_000, 60_000))  # which several threads share
    return sizes, sum(map(oracle.num_blocks, sizes))


def runs_of(sizes: list[int], first: int, last: int) -> Iterator[tuple[int, slice, slice]]:
    """The tensors with blocks in [first, last): number, elements, blocks from `first`."""
    start = 0
    for number, size in enumerate(sizes):
        end = start + oracle.num_blocks(size)
        low, high = max(first, start), min(last, end)
        if low < high:
            elements = slice((low - start) * 128, min(size, (high - start) * 128))
            yield number, elements, slice(low - first, high - first)
        start = end
