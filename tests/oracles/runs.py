"""The runs of a segment of the compact wire and their bits, in NumPy.

A part of `tests.oracles.compact`, which shares nothing with the C++.
"""

import functools
from collections.abc import Sequence

import numpy as np

from tests.oracles.rans import KINDS, BrokenError, Decoder, byte_frequencies, frequencies, round_up
from tests.oracles.two_bit import BLOCK_SIZE, Array

RUN = 64
SAMPLED_TILES = 4

EQUAL, FEW, SOME, MIXED = range(4)
BIT_TABLES = {FEW: byte_frequencies(16), SOME: byte_frequencies(60)}


def padded(part: bytes) -> bytes:
    """With zeros up to a multiple of 8 bytes."""
    return part.ljust(round_up(len(part), 8), b"\0")


def bytes_of_bits(bits: Array) -> bytes:
    """The first bit is the lowest one of the first byte."""
    return padded(np.packbits(bits.astype(np.uint8), bitorder="little").tobytes())


def bits_of_bytes(data: bytes, count: int) -> Array:
    ones = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return ones[:count]


# ---- Runs --------------------------------------------------------------------------


def columns_of(tiles: Array) -> Array:
    """The runs of tiles: [tiles, RUN or 2 * RUN, BLOCK_SIZE] to [runs, RUN]."""
    return tiles.transpose(0, 2, 1).reshape(-1, RUN)


def runs_of(filled: Array, scales: Array, period: int, paired: int) -> Array:
    """[runs, RUN]: the numbers of the codes that the runs of a segment have.

    `scales` has the bytes of the scales, if there are any.
    """
    numbers = np.arange(filled.size * BLOCK_SIZE).reshape(-1, BLOCK_SIZE)
    if period == 0:
        return numbers[filled].reshape(-1, RUN)
    keys = scales.copy().view("<u2") if scales.size else np.zeros(filled.size)
    in_order = numbers[np.lexsort((keys, np.arange(filled.size) % period))]
    size = RUN * (1 + paired)  # of a tile
    end = filled.size // size * size
    tiles = in_order[:end].reshape(-1, size, BLOCK_SIZE)
    return np.concatenate([columns_of(tiles), in_order[end:].reshape(-1, RUN)])


def cost_of(nonzero: Array, minus: Array) -> int:
    """A measure of the bits of runs, by which codes are not zero and which of these have sign 1."""
    nonzeros, signs = np.count_nonzero(nonzero, axis=1), np.count_nonzero(minus, axis=1)
    return int((np.minimum(nonzeros, RUN - nonzeros) + np.minimum(signs, nonzeros - signs)).sum())


def best_period(magnitudes: Array, signs: Array, periods: Sequence[int]) -> int:
    """Which of the periods the packer chooses for a segment, 0 for none of them."""
    nonzero = (magnitudes > 0).reshape(-1, BLOCK_SIZE)
    minus = nonzero & (signs == 1).reshape(-1, BLOCK_SIZE)
    best, least = 0, 0
    for period in periods:
        order = np.argsort(np.arange(len(nonzero)) % period, kind="stable")
        order = order[: len(nonzero) // RUN * RUN]
        tiles = order.reshape(-1, RUN)[::SAMPLED_TILES]
        halves = cost_of(nonzero[tiles].reshape(-1, RUN), minus[tiles].reshape(-1, RUN))
        cost = cost_of(columns_of(nonzero[tiles]), columns_of(minus[tiles])) - halves
        if cost < least:
            best, least = period, cost
    return best


def is_paired(blocks: int, period: int) -> bool:
    """Whether the packer pairs the runs of a segment of `blocks` blocks."""
    return period > 0 and blocks // period >= 2 * RUN


# ---- Planes ------------------------------------------------------------------------


class Plane:
    """The kinds of runs in a plane, and which of their codes have a bit in it, [runs, RUN]."""

    def __init__(self, kinds: Array, sent: Array) -> None:
        """With a kind for each run, or for each pair of runs."""
        self.kinds = kinds if len(kinds) == len(sent) else kinds.repeat(2)
        self.sent = sent

    def of_class(self, number: int) -> Array:
        """Which bits are of runs of a class."""
        return self.sent & (self.kinds // 2 == number)[:, None]

    def inverted(self, bits: Array) -> Array:
        """The bits, inverted in some runs."""
        return bits ^ (self.sent & (self.kinds % 2 == 1)[:, None])


@functools.cache
def kind_of(ones: int, bits: int) -> int:
    """The kind that the packer chooses for `bits` bits, of which `ones` are 1."""
    rest = min(ones, bits - ones)
    if rest == 0:
        return 2 * EQUAL + (ones > 0)
    part = rest / bits
    if part > 92 / 256:
        return 2 * MIXED
    return 2 * (FEW if part <= 34 / 256 else SOME) + (ones > rest)


def kinds_of(sent: Array, ones: Array, paired: int) -> Array:
    """The kinds that the packer finds for the runs of a plane, or for its pairs of runs."""
    size = RUN * (1 + paired)
    both = (bits.reshape(-1, size) for bits in (sent & ones, sent))
    numbers = [np.count_nonzero(bits, axis=1).tolist() for bits in both]
    return np.array([kind_of(*pair) for pair in zip(*numbers, strict=True)], np.uint8)


def counts_of(kinds: Array) -> bytes:
    """The bytes on the wire that say how often each kind occurs."""
    counts = np.bincount(kinds, minlength=KINDS).tolist()
    return bytes(-(-255 * count // max(1, *counts)) for count in counts)


def only_kind(counts: bytes) -> int | None:
    """The kind of all runs of a plane that has such counts, None if it has rows of kinds."""
    counted = [kind for kind, count in enumerate(counts) if count > 0]
    if not counted:
        return 0
    return counted[0] if len(counted) == 1 else None


def pack_plane(
    sent: Array, ones: Array, kinds: Array
) -> tuple[bytes, list[tuple[list[int], bytes]], bytes]:
    """The counts of a plane's kinds, what is coded of it, and its mixed bits."""
    plane, counts = Plane(kinds, sent), counts_of(kinds)
    bits = plane.inverted(ones)
    coded = []
    if only_kind(counts) is None:
        coded.append((frequencies(list(counts)), kinds.tobytes()))
    coded += [(table, bytes_of_bits(bits[plane.of_class(n)])) for n, table in BIT_TABLES.items()]
    return counts, coded, bytes_of_bits(bits[plane.of_class(MIXED)])


class PlaneReader:
    """Reads the planes of a segment, one after the other."""

    def __init__(self, coded: Decoder, counts: bytes, mixed: bytes, paired: int) -> None:
        self._coded, self._counts, self._mixed, self._paired = coded, counts, mixed, paired

    def read(self, sent: Array) -> Array:
        """The bits of the next plane, 0 where none is sent."""
        counts, self._counts = self._counts[:KINDS], self._counts[KINDS:]
        only, number_of_kinds = only_kind(counts), len(sent) // (1 + self._paired)
        if only is None:
            coded = self._coded.decode(frequencies(list(counts)), number_of_kinds)
            kinds = np.frombuffer(coded, np.uint8)
        else:
            kinds = np.full(number_of_kinds, only, np.uint8)
        plane, bits = Plane(kinds, sent), np.zeros(sent.shape, bool)
        for number, table in BIT_TABLES.items():
            these = plane.of_class(number)
            count = int(np.count_nonzero(these))
            bits[these] = bits_of_bytes(self._coded.decode(table, -(-count // 8)), count)
        these = plane.of_class(MIXED)  # bits that are sent as they are, with zeros after them
        count = int(np.count_nonzero(these))
        size = round_up(count, 64) // 8
        if size > len(self._mixed):
            raise BrokenError("there are more mixed bits than the header says")
        bits[these] = bits_of_bytes(self._mixed[:size], count)
        self._mixed = self._mixed[size:]
        return plane.inverted(bits)

    def end(self) -> None:
        """Raises BrokenError if this is not the end of all planes."""
        self._coded.end()
        if self._mixed:
            raise BrokenError("there are fewer mixed bits than the header says")
