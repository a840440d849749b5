"""Messages for the compact wire, and the same calls on the library and on the oracle."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import settings

from tests.bits import assert_same_bits
from tests.custom_ops import native
from tests.custom_ops.cases import Array, Guarded, Targets
from tests.custom_ops.native import (
    BLOCK_SIZE,
    CODE_BITS,
    COMPACTIBLE,
    AnyCodec,
    Codec,
    Library,
    RunTasks,
)
from tests.oracles import compact as oracle
from tests.oracles.rans import KINDS, BrokenError, round_up

SEGMENT = oracle.SEGMENT_BLOCKS
SEGMENTS_OFFSET = 272  # of the headers of the segments
SEGMENT_HEADER = np.dtype(
    [("words", "<u4"), ("mixed", "<u4"), ("filled", "<u4"), ("period", "<u2"), ("paired", "<u2")]
)
MIXED_KIND = 6
# Of a bit to be 1, so that runs are of each kind.
CHANCES = [0, 0.01, 0.08, 0.25, 0.5, 0.75, 0.92, 0.99, 1]

# A test takes the fixture `wire`, of each codec or of these.
with_scales = pytest.mark.parametrize(
    "wire", [codec for codec in COMPACTIBLE if native.has_scales(codec)], indirect=True
)
searched = settings(max_examples=80)


class Wire:
    """Messages of a codec, and what the oracle and the library on each target make of them."""

    def __init__(self, codec: AnyCodec, on_each_target: Targets) -> None:
        self.codec = codec
        self.form = oracle.Coding(codec)
        self.planes = self.form.planes
        self.block_bytes = native.code_bytes(codec)
        self.on_each_target = on_each_target
        self.rng = np.random.default_rng(1)

    # ---- Messages --------------------------------------------------------------------

    def codes(self, blocks: int, density: float) -> Array:
        """Codes of which such a part is not zero, small ones more often than large ones."""
        size = blocks * BLOCK_SIZE
        nonzero = self.rng.random(size) < density
        count = np.count_nonzero(nonzero)
        magnitudes, signs = np.zeros((2, size), np.uint8)
        most = (1 << (CODE_BITS[self.codec] - 1)) - 1
        magnitudes[nonzero] = np.minimum(self.rng.geometric(0.4, count), most)
        signs[nonzero] = self.rng.integers(0, 2, count)
        return self.form.codes(magnitudes, signs)

    def codes_of_planes(self, chances: Array) -> Array:
        """Codes with such chances of a bit to be 1, [planes, ...]. Each plane is as on the wire."""
        chances = chances.reshape(self.planes, -1)
        bits = self.rng.random(chances.shape) < chances
        nonzero, signs = bits[0], bits[0] & bits[1]
        magnitudes = np.zeros(nonzero.size, np.uint8)
        for plane, bit in enumerate(self.form.common, 2):
            magnitudes |= bits[plane].astype(np.uint8) << bit
        if self.form.has_rare_bits:
            rare = (magnitudes == 0) | bits[-1]
            magnitudes |= rare.astype(np.uint8) << self.form.rare
        else:
            magnitudes += 1
        magnitudes = np.where(nonzero, magnitudes, 0).astype(np.uint8)
        return self.form.codes(magnitudes, signs.astype(np.uint8))

    def codes_by_column(self, blocks: int, period: int) -> Array:
        """Codes of a matrix with rows of `period` blocks: in a column they are alike."""
        of_rows = self.rng.choice(CHANCES, (self.planes, period, BLOCK_SIZE))
        return self.codes_of_planes(of_rows[:, np.arange(blocks) % period])

    def codes_by_half(self, blocks: int) -> Array:
        """Codes that are alike in half of a block, and not from one half to the next."""
        of_halves = self.rng.choice(CHANCES, (self.planes, 2 * blocks))
        return self.codes_of_planes(of_halves.repeat(BLOCK_SIZE // 2, axis=1))

    def scales(self, codes: Array) -> Array:
        """Scales within some powers of two, and 0 for blocks whose codes are all 0."""
        if not self.form.scaled:
            return np.zeros(0, np.uint16)
        by_block = codes.reshape(-1, self.block_bytes)
        scales = np.asarray(0x3A00 + self.rng.binomial(0x400, 0.5, len(by_block)), np.uint16)
        return np.where(by_block.any(axis=1), scales, np.uint16(0))

    def message(self, codes: Array, scales: Array | None = None) -> Array:
        """A message, in memory that is aligned as messages are."""
        blocks = codes.size // self.block_bytes
        threshold = 0.25 if self.codec == Codec.FIXED else 0.0
        scales = self.scales(codes) if scales is None else scales
        return oracle.make_message(int(self.codec), codes.reshape(-1), scales, blocks, threshold)

    def random(self, blocks: int, density: float) -> Array:
        return self.message(self.codes(blocks, density))

    def by_column(self, blocks: int, period: int) -> Array:
        return self.message(self.codes_by_column(blocks, period))

    # ---- What is made of them --------------------------------------------------------

    def packed(self, message: Array, periods: Sequence[int] = ()) -> Array:
        """The message as the oracle packs it, to be changed."""
        return oracle.pack(int(self.codec), message, periods).copy()

    def unpacked(self, blocks: int, compact: Array) -> Array:
        return oracle.unpack(int(self.codec), blocks, compact)

    def check(self, message: Array, periods: Sequence[int] = ()) -> Array:
        """Asks the oracle and all targets; returns the packed message."""
        expected = self.packed(message, periods)
        for library in self.on_each_target():
            assert_same_bits(pack(library, self.codec, message, periods=periods), expected)
        self.check_unpacked(expected, message)
        return expected

    def check_unpacked(self, compact: Array, message: Array) -> None:
        """Asserts that what a packer may have made of a message is unpacked."""
        blocks = blocks_of(message)
        if blocks <= 300:  # which does not take long: the oracle has no other loops
            assert_same_bits(self.unpacked(blocks, compact), message)
        assert_same_bits(self.on_each(blocks, compact), message)

    def on_each(self, blocks: int, compact: Array) -> Array | None:
        """The message that all targets unpack from these bytes; `None` if all refuse them."""
        first, *others = [
            unpack(library, self.codec, blocks, compact) for library in self.on_each_target()
        ]
        for other in others:
            if first is None or other is None:
                assert first is other
            else:
                assert_same_bits(other, first)
        return first

    def check_as_oracle(self, blocks: int, compact: Array) -> Array | None:
        """Asserts that all make the same of any bytes, and returns it: None if they are refused."""
        found = self.on_each(blocks, compact)
        try:
            expected = self.unpacked(blocks, compact)
        except BrokenError:
            assert found is None
            return None
        assert_same_bits(found, expected)
        return found

    def check_refused(self, blocks: int, compact: Array) -> None:
        assert self.check_as_oracle(blocks, compact) is None

    def changed(self, compact: Array) -> Array:
        """A copy of a packed message, of which a number in a header, a count or a bit differs."""
        rng, compact = self.rng, compact.copy()
        at = self.counts_slice(compact)
        what = rng.integers(3)
        if what == 0:
            values = segment_headers(compact)[rng.choice(SEGMENT_HEADER.names)]
            near = int(values[0]) + int(rng.integers(-2, 3))
            value = int(rng.choice([near, 0, 1, 2, 63, 64, 0xFFFF, 1 << 31, 0xFFFFFFFF]))
            values[0] = value % (1 << 8 * values.itemsize)
        elif what == 1:
            of_plane = self.counts(compact)[rng.integers(self.planes)]
            if rng.random() < 0.5:  # all of one kind, or of several as before
                of_plane[:] = 0
            of_plane[rng.integers(KINDS)] = rng.integers(256)
        else:
            parts = [(0, 16), (16, SEGMENTS_OFFSET), (SEGMENTS_OFFSET + 16, at.start)]
            start, end = [*parts, (at.start, compact.size)][rng.integers(4)]
            compact[rng.integers(start, end)] ^= 1 << rng.integers(8)
        return compact

    def counts_slice(self, compact: Array) -> slice:
        """Where the first segment, which is coded, has the counts of kinds."""
        header = segment_headers(compact)[0]
        start = SEGMENTS_OFFSET + 16 * segments_of(compact) + round_up(2 * int(header["words"]), 8)
        start += round_up(int(header["filled"]), 8) if self.form.scaled else 0
        return slice(start, start + KINDS * self.planes)

    def counts(self, compact: Array) -> Array:
        """[planes, KINDS]: the counts of kinds of the first segment, which is coded."""
        return compact[self.counts_slice(compact)].reshape(-1, KINDS)


def blocks_of(message: Array) -> int:
    return int(message[8:16].view(np.int64)[0])


def pack(
    library: Library,
    codec: AnyCodec,
    message: Array,
    run: RunTasks | None = None,
    periods: Sequence[int] = (),
) -> Array:
    blocks = blocks_of(message)
    capacity = library.pack_capacity(codec, blocks)
    assert capacity >= message.size
    out, given_ = Guarded(capacity, np.uint8), message.copy()
    size = library.pack(codec, blocks, given_, out.array, run, periods)
    assert_same_bits(given_, message)
    assert 0 < size <= message.size
    assert size % 16 == 0
    return out.check()[:size]


def unpack(
    library: Library, codec: AnyCodec, blocks: int, compact: Array, run: RunTasks | None = None
) -> Array | None:
    """The message, None if there is none."""
    out = Guarded(oracle.Coding(codec).message_bytes(blocks), np.uint8)
    whole = library.unpack(codec, blocks, compact.copy(), out.array, run)
    message = out.check()
    return message if whole else None


def segments_of(compact: Array) -> int:
    return len(oracle.segments_of(blocks_of(compact)))


def segment_headers(compact: Array) -> Array:
    """[segments]: the header of each segment, of type SEGMENT_HEADER."""
    end = SEGMENTS_OFFSET + SEGMENT_HEADER.itemsize * segments_of(compact)
    return compact[SEGMENTS_OFFSET:end].view(SEGMENT_HEADER)


def field_of(compact: Array, field: str) -> list[int]:
    """This field of the header of each segment."""
    return segment_headers(compact)[field].tolist()


def only(kind: int, count: int = 255) -> list[int]:
    """The counts of a plane that has only this kind."""
    return [count if i == kind else 0 for i in range(KINDS)]


def choose_all_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the oracle choose the kind of mixed bits for all runs, as other packers may."""
    monkeypatch.setattr(
        *(oracle, "kinds_of"),
        lambda sent, ones, paired: np.full(len(sent) // (1 + paired), MIXED_KIND, np.uint8),
    )


def choose_period(monkeypatch: pytest.MonkeyPatch, period: int, paired: int | None = None) -> None:
    """Has the oracle choose this period for all segments, and pairs or not."""
    monkeypatch.setattr(oracle, "best_period", lambda *_: period)
    if paired is not None:
        monkeypatch.setattr(oracle, "is_paired", lambda *_: paired)


def is_packed(compact: Array) -> bool:
    return bool(compact[:2].view(np.uint16)[0] == oracle.COMPACT_MAGIC)
