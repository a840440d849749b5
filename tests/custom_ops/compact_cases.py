"""Messages for the compact wire, and the same calls on the library and on the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests import oracle_compact
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

Rng = np.random.Generator
Targets = Callable[[], Iterator[Library]]

SEGMENTS_OFFSET = 792  # of the headers of the segments

each_codec = pytest.mark.parametrize(
    "codec", COMPACTIBLE, ids=["fixed", "auto", "three_bit", "four_bit"]
)
searched = settings(
    deadline=None,
    derandomize=True,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def codes_of(rng: Rng, codec: AnyCodec, blocks: int, density: float) -> Array:
    """Codes of which such a part is not zero, small ones more often than large ones."""
    form = oracle_compact.Format.of(codec)
    size = blocks * BLOCK_SIZE
    most = (1 << (CODE_BITS[codec] - 1)) - 1
    nonzero = rng.random(size) < density
    magnitudes = np.where(nonzero, np.minimum(rng.geometric(0.4, size), most), 0)
    signs = np.where(nonzero, rng.integers(0, 2, size), 0)
    return form.codes(magnitudes.astype(np.uint8), signs.astype(np.uint8))


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


def pack(library: Library, codec: AnyCodec, message: Array, run: RunTasks | None = None) -> Array:
    blocks = blocks_of(message)
    capacity = library.pack_capacity(codec, blocks)
    assert capacity >= message.size
    out, given_ = Guarded(capacity, np.uint8), message.copy()
    size = library.pack(codec, blocks, given_, out.array, run)
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


def check_message(on_each_target: Targets, codec: AnyCodec, message: Array) -> Array:
    """Asks the oracle and all targets; returns the packed message."""
    expected = oracle_compact.pack(int(codec), message)
    assert_same_bits(oracle_compact.unpack(int(codec), blocks_of(message), expected), message)
    for library in on_each_target():
        assert_same_bits(pack(library, codec, message), expected)
        unpacked = unpack(library, codec, blocks_of(message), expected)
        assert unpacked is not None
        assert_same_bits(unpacked, message)
    return expected


def segment_headers(compact: Array, segments: int) -> Array:
    """[segments, 4]: words, nonzeros, rare, filled."""
    end = SEGMENTS_OFFSET + 16 * segments
    headers: Array = compact[SEGMENTS_OFFSET:end].view(np.uint32).reshape(-1, 4)
    return headers


def is_packed(compact: Array) -> bool:
    return bool(compact[:2].view(np.uint16)[0] == oracle_compact.COMPACT_MAGIC)
