"""Messages for the compact wire, and the same calls on the library and on the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import settings

from tests.custom_ops import native
from tests.custom_ops.cases import Array, Guarded, assert_same_bits
from tests.custom_ops.native import (
    BLOCK_SIZE,
    CODE_BITS,
    COMPACTIBLE,
    AnyCodec,
    Codec,
    Library,
    RunTasks,
)
from tests.oracles import compact as oracle_compact
from tests.oracles.rans import KINDS, BrokenError, round_up

Rng = np.random.Generator
Targets = Callable[[], Iterator[Library]]

SEGMENTS_OFFSET = 272  # of the headers of the segments
# The fields of one.
WORDS, MIXED, FILLED, PERIOD, PAIRED = "words", "mixed", "filled", "period", "paired"
SEGMENT_HEADER = np.dtype(
    [(WORDS, "<u4"), (MIXED, "<u4"), (FILLED, "<u4"), (PERIOD, "<u2"), (PAIRED, "<u2")]
)
MIXED_KIND = 6
# Of a bit to be 1, so that runs are of each kind.
CHANCES = [0, 0.01, 0.08, 0.25, 0.5, 0.75, 0.92, 0.99, 1]

each_codec = pytest.mark.parametrize(
    "codec", COMPACTIBLE, ids=["fixed", "auto", "three_bit", "four_bit"]
)
with_scales = pytest.mark.parametrize(
    "codec", [codec for codec in COMPACTIBLE if native.has_scales(codec)]
)
searched = settings(max_examples=80)


def codes_of(rng: Rng, codec: AnyCodec, blocks: int, density: float) -> Array:
    """Codes of which such a part is not zero, small ones more often than large ones."""
    form = oracle_compact.Format.of(codec)
    size = blocks * BLOCK_SIZE
    most = (1 << (CODE_BITS[codec] - 1)) - 1
    nonzero = rng.random(size) < density
    count = np.count_nonzero(nonzero)
    magnitudes, signs = np.zeros((2, size), np.uint8)
    magnitudes[nonzero] = np.minimum(rng.geometric(0.4, count), most)
    signs[nonzero] = rng.integers(0, 2, count)
    return form.codes(magnitudes, signs)


def codes_of_planes(rng: Rng, codec: AnyCodec, chances: Array) -> Array:
    """Codes with such chances of a bit to be 1, [planes, size]. Each plane is as on the wire."""
    form = oracle_compact.Format.of(codec)
    bits = rng.random(chances.shape) < chances
    nonzero, signs = bits[0], bits[0] & bits[1]
    magnitudes = np.zeros(nonzero.size, np.uint8)
    for plane, bit in enumerate(form.common, 2):
        magnitudes |= bits[plane].astype(np.uint8) << bit
    if form.has_rare_bits:
        rare = (magnitudes == 0) | bits[-1]
        magnitudes |= rare.astype(np.uint8) << form.rare
    else:
        magnitudes += 1
    return form.codes(np.where(nonzero, magnitudes, 0).astype(np.uint8), signs.astype(np.uint8))


def codes_by_column(rng: Rng, codec: AnyCodec, blocks: int, period: int) -> Array:
    """Codes of a matrix whose rows have so many blocks: in a column they are alike."""
    planes = oracle_compact.Format.of(codec).planes
    of_rows = rng.choice(CHANCES, (planes, period, BLOCK_SIZE))
    chances = of_rows[:, np.arange(blocks) % period].reshape(planes, -1)
    return codes_of_planes(rng, codec, chances)


def codes_by_half(rng: Rng, codec: AnyCodec, blocks: int) -> Array:
    """Codes that are alike in half of a block, and not from one half to the next."""
    planes = oracle_compact.Format.of(codec).planes
    of_halves = rng.choice(CHANCES, (planes, 2 * blocks))
    return codes_of_planes(rng, codec, of_halves.repeat(BLOCK_SIZE // 2, axis=1))


def scales_of(rng: Rng, codec: AnyCodec, codes: Array) -> Array:
    """Scales within some powers of two, and 0 for blocks whose codes are all 0."""
    if not native.has_scales(codec):
        return np.zeros(0, np.uint16)
    by_block = codes.reshape(-1, native.code_bytes(codec))
    scales = np.asarray(0x3A00 + rng.binomial(0x400, 0.5, len(by_block)), np.uint16)
    return np.where(by_block.any(axis=1), scales, np.uint16(0))


def message_of(codec: AnyCodec, codes: Array, scales: Array) -> Array:
    """A message, in memory that is aligned as messages are."""
    blocks = codes.size // native.code_bytes(codec)
    threshold = 0.25 if codec == Codec.FIXED else 0.0
    return oracle_compact.make_message(int(codec), codes, scales, blocks, threshold)


def random_message(rng: Rng, codec: AnyCodec, blocks: int, density: float) -> Array:
    codes = codes_of(rng, codec, blocks, density)
    return message_of(codec, codes, scales_of(rng, codec, codes))


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
    out = Guarded(oracle_compact.Format.of(codec).message_bytes(blocks), np.uint8)
    if not library.unpack(codec, blocks, compact.copy(), out.array, run):
        out.check()
        return None
    return out.check()


def assert_oracle_unpacks(codec: AnyCodec, compact: Array, message: Array) -> None:
    """Asserts it of messages for which that does not take long: the oracle has no other loops."""
    blocks = blocks_of(message)
    if blocks <= 300:
        assert_same_bits(oracle_compact.unpack(int(codec), blocks, compact), message)


def check_message(
    on_each_target: Targets, codec: AnyCodec, message: Array, periods: Sequence[int] = ()
) -> Array:
    """Asks the oracle and all targets; returns the packed message."""
    expected = oracle_compact.pack(int(codec), message, periods)
    assert_oracle_unpacks(codec, expected, message)
    for library in on_each_target():
        assert_same_bits(pack(library, codec, message, periods=periods), expected)
        unpacked = unpack(library, codec, blocks_of(message), expected)
        assert unpacked is not None
        assert_same_bits(unpacked, message)
    return expected


def assert_unpacked(
    on_each_target: Targets, codec: AnyCodec, compact: Array, message: Array
) -> None:
    """Asserts that what another packer may have made of a message is unpacked."""
    assert is_packed(compact)
    assert_oracle_unpacks(codec, compact, message)
    for library in on_each_target():
        unpacked = unpack(library, codec, blocks_of(message), compact)
        assert unpacked is not None
        assert_same_bits(unpacked, message)


def unpack_on_each(
    on_each_target: Targets, codec: AnyCodec, blocks: int, compact: Array
) -> Array | None:
    """What all targets make of these bytes."""
    first, *others = [unpack(library, codec, blocks, compact) for library in on_each_target()]
    for other in others:
        if first is None or other is None:
            assert first is other
        else:
            assert_same_bits(other, first)
    return first


def assert_refused(on_each_target: Targets, codec: AnyCodec, blocks: int, compact: Array) -> None:
    """Asserts that the oracle and all targets refuse these bytes."""
    with pytest.raises(BrokenError):
        oracle_compact.unpack(int(codec), blocks, compact)
    assert unpack_on_each(on_each_target, codec, blocks, compact) is None


def segment_headers(compact: Array, segments: int) -> Array:
    """[segments]: the header of each segment, of type SEGMENT_HEADER."""
    end = SEGMENTS_OFFSET + SEGMENT_HEADER.itemsize * segments
    headers: Array = compact[SEGMENTS_OFFSET:end].view(SEGMENT_HEADER)
    return headers


def field_of(compact: Array, field: str) -> list[int]:
    """This field of the header of each segment."""
    segments = len(oracle_compact.segments_of(blocks_of(compact)))
    values: list[int] = segment_headers(compact, segments)[field].tolist()
    return values


def periods_of(compact: Array) -> list[int]:
    """The period of each segment."""
    return field_of(compact, PERIOD)


def counts_of_kinds(codec: AnyCodec, compact: Array) -> slice:
    """Where the first segment, which is coded, has the counts of kinds."""
    form = oracle_compact.Format.of(codec)
    segments = len(oracle_compact.segments_of(blocks_of(compact)))
    header = segment_headers(compact, segments)[0]
    words, filled = int(header[WORDS]), int(header[FILLED])
    start = SEGMENTS_OFFSET + 16 * segments + round_up(2 * words, 8)
    start += round_up(filled, 8) if form.scaled else 0
    return slice(start, start + KINDS * form.planes)


def kind_counts(codec: AnyCodec, compact: Array) -> Array:
    """[planes, KINDS]: the counts of kinds of the first segment, which is coded."""
    counts: Array = compact[counts_of_kinds(codec, compact)].reshape(-1, KINDS)
    return counts


def only(kind: int, count: int = 255) -> list[int]:
    """The counts of a plane that has only this kind."""
    return [count if i == kind else 0 for i in range(KINDS)]


def choose_all_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the oracle choose the kind of mixed bits for all runs, as other packers may."""
    monkeypatch.setattr(
        *(oracle_compact, "kinds_of"),
        lambda sent, ones, paired: np.full(len(sent) // (1 + paired), MIXED_KIND, np.uint8),
    )


def is_packed(compact: Array) -> bool:
    return bool(compact[:2].view(np.uint16)[0] == oracle_compact.COMPACT_MAGIC)
