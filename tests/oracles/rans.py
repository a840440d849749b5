"""The coder of the compact wire, in plain Python: rANS, and the tables of frequencies.

A part of `tests.oracles.compact`, with Python's integers, one lane after the other.
"""

import functools
from itertools import accumulate

LANES = 32
FREQUENCY_BITS = 12
FREQUENCY_SUM = 4096
LOWEST_STATE = 65_536
SCALE_SYMBOLS, KINDS = 128, 8


class BrokenError(Exception):
    """These bytes are no message."""


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def frequencies(counts: list[int]) -> list[int]:
    """The frequencies of symbols that were counted so often."""
    total = max(1, sum(counts))
    result = [1 + one * (FREQUENCY_SUM - len(counts)) // total for one in counts]
    result[counts.index(max(counts))] += FREQUENCY_SUM - sum(result)
    return result


def byte_frequencies(chance: int) -> list[int]:
    """The frequencies of bytes of bits, of which `chance` in 256 are 1."""
    result = []
    for byte in range(256):
        ones = byte.bit_count()
        weight = chance**ones * (256 - chance) ** (8 - ones)
        result.append(1 + (weight // 2**16 * 3840) // 2**48)
    result[0] += FREQUENCY_SUM - sum(result)
    return result


def rows_of(data: bytes) -> list[bytes]:
    """A byte for each lane, with zeros in the last row."""
    data = data.ljust(round_up(len(data), LANES), b"\0")
    return [data[i : i + LANES] for i in range(0, len(data), LANES)]


# ---- The coder ---------------------------------------------------------------------


def starts(table: list[int]) -> list[int]:
    """Where the interval of each symbol starts."""
    return list(accumulate(table, initial=0))[:-1]


def code(parts: list[tuple[list[int], bytes]]) -> list[int]:
    """The words of bytes, given with the table of frequencies for each part of them.

    Codes in the opposite order of decoding: from the last row to the first one.
    """
    states = [LOWEST_STATE] * LANES
    groups: list[list[int]] = []  # of words, the last one is decoded first
    for table, data in reversed(parts):
        limits = [frequency << (32 - FREQUENCY_BITS) for frequency in table]
        symbols = list(zip(table, starts(table), limits, strict=True))
        for row in reversed(rows_of(data)):
            words = []
            for lane, symbol in enumerate(row):
                frequency, first, limit = symbols[symbol]
                x = states[lane]
                if x >= limit:
                    words.append(x & 0xFFFF)
                    x >>= 16
                states[lane] = (x // frequency << FREQUENCY_BITS) + x % frequency + first
            groups.append(words)
    groups.append([word for x in states for word in (x & 0xFFFF, x >> 16)])
    return [word for group in groups for word in group]


@functools.lru_cache(16)
def by_low_bits(table: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """For the low bits of a state: a symbol, its frequency, and where in its interval they are."""
    return [(symbol, size, i) for symbol, size in enumerate(table) for i in range(size)]


class Decoder:
    """Decodes words, a part after the other."""

    def __init__(self, words: list[int]) -> None:
        if len(words) < 2 * LANES:
            raise BrokenError("words of the states are missing")
        self._left, last = words[: -2 * LANES], words[-2 * LANES :]
        self._states = [low | high << 16 for low, high in zip(last[::2], last[1::2], strict=True)]

    def decode(self, table: list[int], size: int) -> bytes:
        """The next `size` bytes. The rest of their last row is decoded with them."""
        states, left = self._states, self._left
        intervals = by_low_bits(tuple(table))
        result = bytearray()
        row = bytearray(LANES)
        while len(result) < size:
            # The last lane that takes a word takes the last word.
            for lane in reversed(range(LANES)):
                x = states[lane]
                row[lane], frequency, offset = intervals[x % FREQUENCY_SUM]
                x = frequency * (x >> FREQUENCY_BITS) + offset
                if x < LOWEST_STATE:
                    if not left:
                        raise BrokenError("words are missing")
                    x = x << 16 | left.pop()
                states[lane] = x
            result += row
        return bytes(result[:size])

    def end(self) -> None:
        """Raises BrokenError if this is not the end of the words."""
        if self._left or any(x != LOWEST_STATE for x in self._states):
            raise BrokenError("words are left")
