"""The compact wire, in plain Python: the reference for every implementation.

Written from the comments of `custom_ops/lib/wire/compact_wire.h`; it shares no code and no table
with it. Messages are uint8 arrays.
"""

from __future__ import annotations

import dataclasses
import struct

import numpy as np

from tests import oracle, oracle_levels
from tests.oracle import BLOCK_SIZE, Array
from tests.oracle_rans import (
    FREQUENCY_SUM,
    LANES,
    MAP_SYMBOLS,
    SCALE_SYMBOLS,
    BrokenError,
    chance_of,
    code,
    decode,
    frequencies,
    rare_frequencies,
    round_up,
    rows_of,
)

HEADER = struct.Struct("<HBBIq")  # magic, version, codec, threshold, blocks
SEGMENT = struct.Struct("<IIII")  # words, nonzeros, rare, filled
MAGIC, COMPACT_MAGIC = 0x4347, 0x3447

SEGMENT_BLOCKS = 1024
SAMPLED_BLOCKS = 7

# By the number of a codec: the bits of a code, and whether blocks have scales.
CODECS = {1: (2, False), 2: (2, True), 8: (3, True), 9: (4, True)}
CHANCE = struct.Struct("<Q")


@dataclasses.dataclass(frozen=True)
class Format:
    """A codec, as the wire has it."""

    bits: int
    scaled: bool

    @staticmethod
    def of(codec: int) -> Format:
        return Format(*CODECS[codec])

    @property
    def has_rare_bits(self) -> bool:
        """Whether magnitudes have several bits, of which one is rare."""
        return self.bits > 2

    def common_bits(self, magnitudes: Array) -> list[Array]:
        """The bits of magnitudes but the rare one, the lowest first."""
        return [magnitudes >> bit & 1 for bit in self.common]

    @property
    def rare(self) -> int:
        """Which bit of a magnitude is rare: of two bits the lowest, of three the top one."""
        return {3: 0, 4: 2}[self.bits]

    @property
    def common(self) -> list[int]:
        return {2: [], 3: [1], 4: [0, 1]}[self.bits]

    def rare_bits(self, magnitudes: Array) -> Array:
        """The rare bits of the magnitudes that have another bit."""
        if not self.has_rare_bits:
            return np.zeros(0, np.uint8)
        others = magnitudes & ~np.uint8(1 << self.rare) != 0
        bits: Array = magnitudes[others] >> self.rare & 1
        return bits

    def code_bytes(self, blocks: int) -> int:
        return blocks * BLOCK_SIZE * self.bits // 8

    def scale_bytes(self, blocks: int) -> int:
        return 2 * blocks if self.scaled else 0

    def plain_bytes(self, blocks: int) -> int:
        """The bytes of a segment that is not coded."""
        return round_up(self.code_bytes(blocks) + self.scale_bytes(blocks), 8)

    def message_bytes(self, blocks: int) -> int:
        parts = self.code_bytes(blocks) + self.scale_bytes(blocks)
        return round_up(HEADER.size + parts, 16)

    def numbers(self, codes: Array) -> tuple[Array, Array]:
        """Magnitudes and signs of the codes of some blocks, in the order of the nonzero maps."""
        size = codes.size * 8 // self.bits
        if self.bits == 2:
            in_order = oracle.unpack(codes, size).reshape(-1, 4)[:, ::-1].reshape(-1)
            return in_order >> 1, in_order & 1
        values = oracle_levels.unpack(codes, size, self.bits)
        return values & ((1 << (self.bits - 1)) - 1), values >> (self.bits - 1)

    def codes(self, magnitudes: Array, signs: Array) -> Array:
        """The inverse of `numbers`."""
        if self.bits == 2:
            in_order = magnitudes << 1 | signs
            return oracle.pack(in_order.reshape(-1, 4)[:, ::-1].reshape(-1))
        return oracle_levels.pack(signs << (self.bits - 1) | magnitudes, self.bits)


# ---- Parts of a message ------------------------------------------------------------


def make_message(
    codec: int, codes: Array, scales: Array, blocks: int, threshold: float = 0.0
) -> Array:
    """A message of wire.h."""
    (threshold_bits,) = struct.unpack("<I", struct.pack("<f", threshold))
    head = HEADER.pack(MAGIC, 1, codec, threshold_bits, blocks)
    body = head + codes.tobytes() + scales.astype("<u2").tobytes()
    return np.frombuffer(body.ljust(Format.of(codec).message_bytes(blocks), b"\0"), np.uint8)


def segments_of(blocks: int) -> list[int]:
    """The blocks of each segment."""
    return [min(SEGMENT_BLOCKS, blocks - i) for i in range(0, blocks, SEGMENT_BLOCKS)]


def padded(part: bytes) -> bytes:
    """With zeros up to a multiple of 8 bytes."""
    return part.ljust(round_up(len(part), 8), b"\0")


def bytes_of_bits(bits: Array) -> bytes:
    """The first bit is the lowest one of the first byte."""
    return padded(np.packbits(bits.astype(np.uint8), bitorder="little").tobytes())


def bits_of_bytes(data: bytes, count: int) -> Array:
    ones = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return ones[:count]


def sampled(data: Array, counted: Array) -> list[int]:
    """The bytes of every SAMPLED_BLOCKS-th block, of those that are `counted`."""
    rows = data.reshape(len(counted), -1)[::SAMPLED_BLOCKS]
    symbols: list[int] = rows[counted[::SAMPLED_BLOCKS]].reshape(-1).tolist()
    return symbols


def filled_blocks(form: Format, scales: Array, blocks: int) -> Array:
    """Which blocks are not empty. `scales` has the bytes of the scales."""
    return scales[1::2] > 0 if form.scaled else np.ones(blocks, bool)


# ---- Segments and messages ---------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Tables:
    maps: list[int]
    scales: list[int]
    chance: int  # of a rare bit to be 1, in 256ths; 0 without rare bits

    def to_bytes(self) -> bytes:
        return np.array(self.maps + self.scales, "<u2").tobytes() + CHANCE.pack(self.chance)

    @staticmethod
    def from_bytes(form: Format, data: bytes) -> Tables:
        values = np.frombuffer(data[: -CHANCE.size], "<u2").tolist()
        (chance,) = CHANCE.unpack(data[-CHANCE.size :])
        tables = Tables(values[:MAP_SYMBOLS], values[MAP_SYMBOLS:], chance)
        for table in (tables.maps, tables.scales):
            if min(table) == 0 or sum(table) != FREQUENCY_SUM:
                raise BrokenError("these are no frequencies")
        if not (0 < chance < 256 if form.has_rare_bits else chance == 0):
            raise BrokenError("this is no chance")
        return tables


def pack_segment(form: Format, tables: Tables, codes: Array, scales: Array) -> tuple[bytes, bytes]:
    """The header and the bytes of a segment. `scales` has the bytes of the scales."""
    plain = SEGMENT.pack(0, 0, 0, 0), padded(codes.tobytes() + scales.tobytes())
    magnitudes, signs = form.numbers(codes)
    nonzero = magnitudes > 0
    low, high = scales[::2], scales[1::2]
    if (signs[~nonzero] == 1).any() or (high >= SCALE_SYMBOLS).any():
        return plain
    maps = np.packbits(nonzero, bitorder="little").reshape(-1, BLOCK_SIZE // 8)
    filled = filled_blocks(form, scales, len(maps))
    if maps[~filled].any() or (form.scaled and low[~filled].any()):
        return plain
    rows = [(tables.scales, rows_of(high.tobytes()))] if form.scaled else []
    rows.append((tables.maps, rows_of(maps[filled].tobytes())))
    rare = form.rare_bits(magnitudes)
    if form.has_rare_bits:
        rows.append((rare_frequencies(tables.chance), rows_of(bytes_of_bits(rare))))
    words = code(rows)
    parts = [padded(np.array(words, "<u2").tobytes())]
    if form.scaled:
        parts.append(padded(low[filled].tobytes()))
    parts.append(bytes_of_bits(signs[nonzero]))
    parts += [bytes_of_bits(bits) for bits in form.common_bits(magnitudes[nonzero])]
    coded = b"".join(parts)
    if len(coded) >= len(plain[1]):
        return plain
    return SEGMENT.pack(len(words), nonzero.sum(), rare.size, filled.sum()), coded


def pack(codec: int, message: Array) -> Array:
    """Packs a message of wire.h."""
    form = Format.of(codec)
    _, version, _, threshold, blocks = HEADER.unpack(message[: HEADER.size].tobytes())
    start = HEADER.size
    codes = message[start : start + form.code_bytes(blocks)]
    start += codes.size
    scales = message[start : start + form.scale_bytes(blocks)]
    if blocks == 0:
        return message
    magnitudes = form.numbers(codes)[0]
    maps = np.packbits(magnitudes > 0, bitorder="little")
    filled = filled_blocks(form, scales, blocks)
    counted = np.array(sampled(magnitudes, filled), np.uint8)
    # Of a scale below zero the packer counts the magnitude.
    high = sampled(scales[1::2] % SCALE_SYMBOLS, np.ones(blocks, bool)) if form.scaled else []
    tables = Tables(
        frequencies(sampled(maps, filled), MAP_SYMBOLS),
        frequencies(high, SCALE_SYMBOLS),
        chance_of(form.rare_bits(counted)) if form.has_rare_bits else 0,
    )
    headers, bodies = [], []
    for segment, count in enumerate(segments_of(blocks)):
        first = segment * SEGMENT_BLOCKS
        of_codes = slice(form.code_bytes(first), form.code_bytes(first + count))
        of_scales = slice(form.scale_bytes(first), form.scale_bytes(first + count))
        header, body = pack_segment(form, tables, codes[of_codes], scales[of_scales])
        headers.append(header)
        bodies.append(body)
    head = HEADER.pack(COMPACT_MAGIC, version, codec, threshold, blocks)
    compact = b"".join([head, tables.to_bytes(), *headers, *bodies])
    compact = compact.ljust(round_up(len(compact) + 8, 16), b"\0")
    return message if len(compact) >= message.size else np.frombuffer(compact, np.uint8)


def unpack_segment(
    form: Format, tables: Tables, blocks: int, header: tuple[int, ...], data: bytes
) -> tuple[Array, Array, int]:
    """The codes and the bytes of the scales of a segment, and its size on the wire."""
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        part = data[at : at + size]
        if len(part) < size:
            raise BrokenError("the segment is too short")
        at += round_up(size, 8)
        return part

    words, nonzeros, rare, of_filled = header
    if words == 0:
        if nonzeros or rare or of_filled:
            raise BrokenError("a segment that is not coded has no bits")
        plain = np.frombuffer(take(form.plain_bytes(blocks)), np.uint8)
        end = form.code_bytes(blocks)
        return plain[:end], plain[end : end + form.scale_bytes(blocks)], at
    if of_filled > blocks:
        raise BrokenError("there are not so many blocks")
    if nonzeros > of_filled * BLOCK_SIZE or rare > nonzeros:
        raise BrokenError("there are not so many codes")
    rows = [(tables.scales, -(-blocks // LANES))] if form.scaled else []
    rows.append((tables.maps, -(-of_filled * 16 // LANES)))
    if form.has_rare_bits:
        rows.append((rare_frequencies(tables.chance), -(-rare // (8 * LANES))))
    decoded = decode(np.frombuffer(take(2 * words), "<u2").tolist(), rows)
    scales = np.zeros(form.scale_bytes(blocks), np.uint8)
    if form.scaled:
        scales[1::2] = np.frombuffer(decoded[0], np.uint8)[:blocks]
    filled = filled_blocks(form, scales, blocks)
    if filled.sum() != of_filled:
        raise BrokenError("other blocks are empty than the header says")
    nonzero = np.zeros((blocks, BLOCK_SIZE), bool)
    of_maps = decoded[1 if form.scaled else 0]
    nonzero[filled] = bits_of_bytes(of_maps, of_filled * BLOCK_SIZE).reshape(-1, BLOCK_SIZE)
    nonzero = nonzero.reshape(-1)
    if nonzero.sum() != nonzeros:
        raise BrokenError("the map has other bits than the header says")
    if form.scaled:
        scales[::2][filled] = np.frombuffer(take(of_filled), np.uint8)

    def take_bits(count: int) -> Array:
        return bits_of_bytes(take(round_up(count, 64) // 8), count)

    signs, magnitudes = np.zeros((2, blocks * BLOCK_SIZE), np.uint8)
    signs[nonzero] = take_bits(nonzeros)
    for bit in form.common:
        magnitudes[nonzero] |= take_bits(nonzeros) << bit
    with_common = magnitudes > 0
    if with_common.sum() != rare:
        raise BrokenError("there are other magnitudes than the header says")
    if form.has_rare_bits:
        magnitudes[with_common] |= bits_of_bytes(decoded[-1], rare) << form.rare
        magnitudes[nonzero & ~with_common] = 1 << form.rare
    else:
        magnitudes[nonzero] = 1
    return form.codes(magnitudes, signs), scales, at


def unpack(codec: int, blocks: int, compact: Array) -> Array:
    """Unpacks what `pack` gave, with zeros after it or not. Raises BrokenError."""
    form = Format.of(codec)
    data = compact.tobytes()
    if len(data) < HEADER.size:
        raise BrokenError("there is no header")
    magic, version, of_codec, threshold, of_blocks = HEADER.unpack_from(data)
    if magic == MAGIC:
        if len(data) < form.message_bytes(blocks):
            raise BrokenError("the message is too short")
        return compact[: form.message_bytes(blocks)]
    if (magic, of_codec, of_blocks) != (COMPACT_MAGIC, codec, blocks):
        raise BrokenError("another message")
    at = HEADER.size + 2 * (MAP_SYMBOLS + SCALE_SYMBOLS) + CHANCE.size
    segments = segments_of(blocks)
    if len(data) < at + SEGMENT.size * len(segments) + 8:
        raise BrokenError("the message is too short")
    tables = Tables.from_bytes(form, data[HEADER.size : at])
    headers = [SEGMENT.unpack_from(data, at + SEGMENT.size * i) for i in range(len(segments))]
    at += SEGMENT.size * len(segments)
    parts = []
    for count, header in zip(segments, headers, strict=True):
        codes, scales, size = unpack_segment(form, tables, count, header, data[at:])
        parts.append((codes, scales))
        at += size
    if len(data) < round_up(at + 8, 16):
        raise BrokenError("the message is too short")
    body = [*(part[0] for part in parts), *(part[1] for part in parts)]
    head = np.frombuffer(HEADER.pack(MAGIC, version, codec, threshold, blocks), np.uint8)
    message = np.zeros(form.message_bytes(blocks), np.uint8)
    whole = np.concatenate([head, *body])
    message[: whole.size] = whole
    return message
