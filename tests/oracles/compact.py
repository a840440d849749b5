"""The compact wire, in NumPy and plain Python: the reference for every implementation.

Written from the comments of `custom_ops/lib/wire/compact_wire.h` and of `frequencies.h` in
`custom_ops/lib/compact`; it shares no code and no table with them. Messages are uint8 arrays.
"""

import struct
from collections.abc import Sequence

import numpy as np

from tests.oracles import levels as oracle_levels
from tests.oracles import two_bit as oracle
from tests.oracles.rans import (
    FREQUENCY_SUM,
    KINDS,
    SCALE_SYMBOLS,
    BrokenError,
    Decoder,
    code,
    frequencies,
    round_up,
)
from tests.oracles.runs import (
    RUN,
    PlaneReader,
    best_period,
    is_paired,
    kinds_of,
    pack_plane,
    padded,
    runs_of,
)
from tests.oracles.two_bit import BLOCK_SIZE, Array

HEADER = struct.Struct("<HBBIq")  # magic, version, codec, threshold, blocks
SEGMENT = struct.Struct("<IIIHH")  # words, mixed, filled, period, paired
MAGIC, COMPACT_MAGIC = 0x4347, 0x3647

SEGMENT_BLOCKS = 4096
SEGMENT_RUNS = SEGMENT_BLOCKS * BLOCK_SIZE // RUN
SAMPLED_BLOCKS = 7

# By the number of a codec: the bits of a code, and whether blocks have scales.
CODECS = {1: (2, False), 2: (2, True), 8: (3, True), 9: (4, True), 10: (8, True)}


class Coding:
    """A codec, as the wire has it."""

    def __init__(self, codec: int) -> None:
        bits, self.scaled = CODECS[codec]
        self.bits = bits
        self.has_rare_bits = bits > 2  # magnitudes have several bits, of which one is rare
        # Of two bits the lowest, of more the top one.
        self.rare = 0 if bits == 3 else bits - 2
        self.common = [bit for bit in range(bits - 1) if bit != self.rare]
        self.planes = 2 + len(self.common) + self.has_rare_bits

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
        """Magnitudes and signs of the codes of some blocks, in the order of their positions."""
        size = codes.size * 8 // self.bits
        if self.bits == 2:
            in_order = oracle.unpack(codes, size).reshape(-1, 4)[:, ::-1].reshape(-1)
            return in_order >> 1, in_order & 1
        if self.bits == 8:
            whole = codes.view(np.int8)
            return np.abs(whole).view(np.uint8) % 128, (whole < 0).astype(np.uint8)
        values = oracle_levels.unpack(codes, size, self.bits)
        return values & ((1 << (self.bits - 1)) - 1), values >> (self.bits - 1)

    def codes(self, magnitudes: Array, signs: Array) -> Array:
        """The inverse of `numbers`."""
        if self.bits == 2:
            in_order = magnitudes << 1 | signs
            return oracle.pack(in_order.reshape(-1, 4)[:, ::-1].reshape(-1))
        if self.bits == 8:  # minus zero is -128
            return np.where(signs == 1, 128 - magnitudes | 128, magnitudes)
        return oracle_levels.pack(signs << (self.bits - 1) | magnitudes, self.bits)


# ---- Parts of a message ------------------------------------------------------------


def make_message(
    codec: int, codes: Array, scales: Array, blocks: int, threshold: float = 0.0
) -> Array:
    """A message of wire.h."""
    (threshold_bits,) = struct.unpack("<I", struct.pack("<f", threshold))
    head = HEADER.pack(MAGIC, 1, codec, threshold_bits, blocks)
    body = head + codes.tobytes() + scales.astype("<u2").tobytes()
    return np.frombuffer(body.ljust(Coding(codec).message_bytes(blocks), b"\0"), np.uint8)


def segments_of(blocks: int) -> list[int]:
    """The blocks of each segment."""
    return [min(SEGMENT_BLOCKS, blocks - i) for i in range(0, blocks, SEGMENT_BLOCKS)]


def filled_blocks(form: Coding, scales: Array, blocks: int) -> Array:
    """Which blocks are not empty. `scales` has the bytes of the scales."""
    return scales[1::2] > 0 if form.scaled else np.ones(blocks, bool)


def planes_of(form: Coding, magnitudes: Array, signs: Array) -> list[tuple[Array, Array]]:
    """For each plane which codes have a bit in it, and the bits."""
    nonzero = magnitudes > 0
    planes = [(np.ones_like(nonzero), nonzero), (nonzero, signs == 1)]
    planes += [(nonzero, magnitudes >> bit & 1 == 1) for bit in form.common]
    if form.has_rare_bits:
        rare = np.uint8(1 << form.rare)
        planes.append((magnitudes & ~rare != 0, magnitudes & rare != 0))
    return planes


# ---- Segments and messages ---------------------------------------------------------


def has_symbols(form: Coding, magnitudes: Array, signs: Array, scales: Array) -> bool:
    """Whether a segment has only what can be coded. `scales` has the bytes of the scales."""
    if (signs[magnitudes == 0] == 1).any() or (scales[1::2] >= SCALE_SYMBOLS).any():
        return False
    by_block = magnitudes.reshape(-1, BLOCK_SIZE)
    empty = ~filled_blocks(form, scales, len(by_block))
    return not by_block[empty].any() and not (form.scaled and scales[::2][empty].any())


def pack_segment(
    form: Coding, scale_table: list[int], codes: Array, scales: Array, periods: Sequence[int]
) -> tuple[bytes, bytes]:
    """The header and the bytes of a segment. `scales` has the bytes of the scales."""
    plain = SEGMENT.pack(0, 0, 0, 0, 0), padded(codes.tobytes() + scales.tobytes())
    magnitudes, signs = form.numbers(codes)
    if not has_symbols(form, magnitudes, signs, scales):
        return plain
    blocks = magnitudes.size // BLOCK_SIZE
    filled = filled_blocks(form, scales, blocks)
    period = best_period(magnitudes, signs, periods)
    paired = int(is_paired(blocks, period))
    runs = runs_of(filled, scales, period, paired)
    planes = []
    for sent, ones in planes_of(form, magnitudes[runs], signs[runs]):
        planes.append(pack_plane(sent, ones, kinds_of(sent, ones, paired)))
    coded = [(scale_table, scales[1::2].tobytes())] if form.scaled else []
    words = code(coded + [part for plane in planes for part in plane[1]])
    mixed = b"".join(plane[2] for plane in planes)
    low = scales[::2][filled].tobytes() if form.scaled else b""
    counts = b"".join(plane[0] for plane in planes)
    body = b"".join(map(padded, [np.array(words, "<u2").tobytes(), low, counts, mixed]))
    if len(body) >= len(plain[1]):
        return plain
    return SEGMENT.pack(len(words), len(mixed) // 8, filled.sum(), period, paired), body


def pack(codec: int, message: Array, periods: Sequence[int] = ()) -> Array:
    """Packs a message of wire.h. A segment may have one of the periods."""
    form = Coding(codec)
    _, version, _, threshold, blocks = HEADER.unpack(message[: HEADER.size].tobytes())
    if blocks == 0:
        return message
    codes, scales = np.split(message[HEADER.size :], [form.code_bytes(blocks)])
    scales = scales[: form.scale_bytes(blocks)]
    # Of a scale below zero the packer counts the magnitude.
    high = scales[1::2][::SAMPLED_BLOCKS] % SCALE_SYMBOLS
    table = frequencies(np.bincount(high, minlength=SCALE_SYMBOLS).tolist())
    headers, bodies = [], []
    for segment, count in enumerate(segments_of(blocks)):
        first = segment * SEGMENT_BLOCKS
        of_codes = slice(form.code_bytes(first), form.code_bytes(first + count))
        of_scales = slice(form.scale_bytes(first), form.scale_bytes(first + count))
        header, body = pack_segment(form, table, codes[of_codes], scales[of_scales], periods)
        headers.append(header)
        bodies.append(body)
    head = HEADER.pack(COMPACT_MAGIC, version, codec, threshold, blocks)
    compact = b"".join([head, np.array(table, "<u2").tobytes(), *headers, *bodies])
    compact = compact.ljust(round_up(len(compact) + 8, 16), b"\0")
    return message if len(compact) >= message.size else np.frombuffer(compact, np.uint8)


def unpack_segment(
    form: Coding, scale_table: list[int], blocks: int, header: tuple[int, ...], data: bytes
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

    words, of_mixed, of_filled, period, paired = header
    if words == 0:
        if of_mixed or of_filled or period or paired:
            raise BrokenError("a segment that is not coded has no parts")
        plain = np.frombuffer(take(form.plain_bytes(blocks)), np.uint8)
        end = form.code_bytes(blocks)
        return plain[:end], plain[end : end + form.scale_bytes(blocks)], at
    if of_filled > blocks or (not form.scaled and of_filled < blocks):
        raise BrokenError("there are fewer blocks")
    if period > SEGMENT_BLOCKS:
        raise BrokenError("the period is too long")
    if paired > (1 if period > 0 else 0):
        raise BrokenError("runs are paired or not, and only columns are")
    if of_mixed > form.planes * SEGMENT_RUNS:
        raise BrokenError("there are more mixed bits than a segment may have")
    coded = Decoder(np.frombuffer(take(2 * words), "<u2").tolist())
    low = take(of_filled if form.scaled else 0)
    planes = PlaneReader(coded, take(form.planes * KINDS), take(8 * of_mixed), paired)
    scales = np.zeros(form.scale_bytes(blocks), np.uint8)
    if form.scaled:
        scales[1::2] = np.frombuffer(coded.decode(scale_table, blocks), np.uint8)
    filled = filled_blocks(form, scales, blocks)
    if filled.sum() != of_filled:
        raise BrokenError("other blocks are empty than the header says")
    if form.scaled:
        scales[::2][filled] = np.frombuffer(low, np.uint8)

    runs = runs_of(filled, scales, period, paired)
    nonzero = planes.read(np.ones(runs.shape, bool))
    of_signs = planes.read(nonzero)
    of_runs = nonzero.astype(np.uint8)  # if a magnitude has one bit
    if form.has_rare_bits:
        common = [planes.read(nonzero).astype(np.uint8) << bit for bit in form.common]
        of_runs = np.bitwise_or.reduce(common)
        rare = planes.read(of_runs > 0) | (nonzero & (of_runs == 0))
        of_runs |= rare.astype(np.uint8) << form.rare
    planes.end()
    magnitudes, signs = np.zeros((2, blocks * BLOCK_SIZE), np.uint8)
    magnitudes[runs], signs[runs] = of_runs, of_signs
    return form.codes(magnitudes, signs), scales, at


def unpack(codec: int, blocks: int, compact: Array) -> Array:
    """Unpacks what `pack` gave, with zeros after it or not. Raises BrokenError."""
    form = Coding(codec)
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
    at = HEADER.size + 2 * SCALE_SYMBOLS
    segments = segments_of(blocks)
    if len(data) < at + SEGMENT.size * len(segments) + 8:
        raise BrokenError("the message is too short")
    table = np.frombuffer(data[HEADER.size : at], "<u2").tolist()
    if min(table) == 0 or sum(table) != FREQUENCY_SUM:
        raise BrokenError("these are no frequencies")
    headers = [SEGMENT.unpack_from(data, at + SEGMENT.size * i) for i in range(len(segments))]
    at += SEGMENT.size * len(segments)
    parts = []
    for count, header in zip(segments, headers, strict=True):
        codes, scales, size = unpack_segment(form, table, count, header, data[at:])
        parts.append((codes, scales))
        at += size
    if len(data) < round_up(at + 8, 16):
        raise BrokenError("the message is too short")
    if round_up(at + 8, 16) >= form.message_bytes(blocks):
        raise BrokenError("the message is not shorter than one that is not packed")
    body = [*(part[0] for part in parts), *(part[1] for part in parts)]
    head = np.frombuffer(HEADER.pack(MAGIC, version, codec, threshold, blocks), np.uint8)
    whole = np.concatenate([head, *body])
    return np.pad(whole, (0, form.message_bytes(blocks) - whole.size))
