"""The coder of the compact wire, in plain Python: rANS, and the frequencies that a packer chooses.

Written from the comments of `custom_ops/lib/wire/compact_wire.h` and `.../codec/frequencies.h`; it
shares no code and no table with them. It computes with Python's integers, one lane after the other.
"""

from __future__ import annotations

from tests.oracle import Array

LANES = 32
FREQUENCY_BITS = 12
FREQUENCY_SUM = 4096
LOWEST_STATE = 65_536
MAP_SYMBOLS, SCALE_SYMBOLS = 256, 128


class BrokenError(Exception):
    """These bytes are no message."""


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def frequencies(symbols: list[int], count: int) -> list[int]:
    """What the packer chooses for symbols that it has sampled."""
    counts = [0] * count
    for symbol in symbols:
        counts[symbol] += 1
    total = max(1, sum(counts))
    result = [1 + one * (FREQUENCY_SUM - count) // total for one in counts]
    result[counts.index(max(counts))] += FREQUENCY_SUM - sum(result)
    return result


def rare_frequencies(chance: int) -> list[int]:
    """The frequencies of bytes of rare bits, of which so many in 256 are 1."""
    result = []
    for byte in range(256):
        ones = byte.bit_count()
        weight = chance**ones * (256 - chance) ** (8 - ones)
        result.append(1 + (weight // 2**16 * 3840) // 2**48)
    result[255 if chance > 128 else 0] += FREQUENCY_SUM - sum(result)
    return result


def chance_of(rare: Array) -> int:
    """What the packer chooses for rare bits that it has sampled."""
    if rare.size == 0:
        return 128
    chance = (256 * int(rare.sum()) + rare.size // 2) // rare.size
    return min(max(chance, 1), 255)


def rows_of(data: bytes) -> list[bytes]:
    """A byte for each lane, with zeros in the last row."""
    data = data.ljust(round_up(len(data), LANES), b"\0")
    return [data[i : i + LANES] for i in range(0, len(data), LANES)]


# ---- The coder ---------------------------------------------------------------------


def starts(table: list[int]) -> list[int]:
    """Where the interval of each symbol starts."""
    return [sum(table[:symbol]) for symbol in range(len(table))]


def code(parts: list[tuple[list[int], list[bytes]]]) -> list[int]:
    """The words of rows, given with the table of frequencies for each list of rows.

    Codes in the opposite order of decoding: from the last row to the first one.
    """
    states = [LOWEST_STATE] * LANES
    groups: list[list[int]] = []  # of words, the last one is decoded first
    for table, rows in reversed(parts):
        first = starts(table)
        for row in reversed(rows):
            words = []
            for lane, symbol in enumerate(row):
                x, frequency = states[lane], table[symbol]
                if x >= frequency << (32 - FREQUENCY_BITS):
                    words.append(x & 0xFFFF)
                    x >>= 16
                x = (x // frequency << FREQUENCY_BITS) + x % frequency + first[symbol]
                states[lane] = x
            groups.append(words)
    groups.append([word for x in states for word in (x & 0xFFFF, x >> 16)])
    return [word for group in groups for word in group]


def decode(words: list[int], parts: list[tuple[list[int], int]]) -> list[bytes]:
    """The bytes of rows, of which there are so many for each table."""
    if len(words) < 2 * LANES:
        raise BrokenError("words of the states are missing")
    left, last = words[: -2 * LANES], words[-2 * LANES :]
    states = [low | high << 16 for low, high in zip(last[::2], last[1::2], strict=True)]
    results = []
    for table, rows in parts:
        first = starts(table)
        symbols = [symbol for symbol, frequency in enumerate(table) for _ in range(frequency)]
        result = bytearray()
        for _ in range(rows):
            for lane in range(LANES):
                x = states[lane]
                symbol = symbols[x % FREQUENCY_SUM]
                states[lane] = (
                    table[symbol] * (x >> FREQUENCY_BITS) + x % FREQUENCY_SUM - first[symbol]
                )
                result.append(symbol)
            takers = [lane for lane in range(LANES) if states[lane] < LOWEST_STATE]
            if len(takers) > len(left):
                raise BrokenError("words are missing")
            taken = left[len(left) - len(takers) :]
            del left[len(left) - len(takers) :]
            for lane, word in zip(takers, taken, strict=True):
                states[lane] = states[lane] << 16 | word
        results.append(bytes(result))
    if left or any(x != LOWEST_STATE for x in states):
        raise BrokenError("words are left")
    return results
