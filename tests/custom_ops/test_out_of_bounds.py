"""No message, however broken, makes the built library read or write beside what it was given.

A byte beside that is in a page that nobody may touch, and kills the process. `make sanitize` looks
for more, and for longer, in a library that it compiles.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import mmap
import os
from typing import Any

import numpy as np
import tensorflow as tf

from tests.custom_ops import native
from tests.custom_ops.cases import CODECS, DTYPES, FIXED, Array, hostile_messages
from tests.custom_ops.compact_cases import SEGMENTS_OFFSET, Wire
from tests.custom_ops.native import COMPACTIBLE, Library
from tests.fork_server import FORK_SERVER
from tf_gc import ops
from tf_gc.ops import _loader

Rng = np.random.Generator
MAX_BYTES = 1 << 18


class Fences:
    """Gives memory between two pages that nobody may touch, at one of them."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._given = 0
        self._spaces: list[Array] = []
        self.at_end = False

    def begin(self, case: str) -> None:
        """Leaves in the log what comes now, and nothing else; takes all memory back."""
        self._given = 0
        self.at_end = bool(self._rng.integers(2))
        os.ftruncate(1, 0)
        print(case, "at the", "end" if self.at_end else "beginning", flush=True)

    def put(self, data: Array) -> Array:
        """A copy that touches the page."""
        if self._given == len(self._spaces):
            self._spaces.append(_fenced())
        space = self._spaces[self._given]
        self._given += 1
        start = space.size - data.nbytes if self.at_end else 0
        result = space[start : start + data.nbytes]
        result[:] = data.reshape(-1).view(np.uint8)
        return result.view(data.dtype).reshape(data.shape)

    def again(self, data: Array) -> Array:
        """The same, in the memory that was given first."""
        given, self._given = self._given, 0
        result = self.put(data)
        self._given = given
        return result

    def empty(self, size: int, dtype: Any) -> Array:
        return self.put(np.zeros(size, dtype))


def _fenced() -> Array:
    """MAX_BYTES bytes between two pages that nobody may touch."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    space = np.frombuffer(mmap.mmap(-1, MAX_BYTES + 2 * mmap.PAGESIZE), np.uint8)
    for start in (0, space.size - mmap.PAGESIZE):
        failed = libc.mprotect(space.ctypes.data + start, mmap.PAGESIZE, 0)
        assert not failed, os.strerror(ctypes.get_errno())
    return space[mmap.PAGESIZE : -mmap.PAGESIZE]


def broken(rng: Rng, message: Array, unit: int) -> Array:
    """A copy with some bytes changed, mostly of its headers, and often with units less or more."""
    data = message.reshape(-1).view(np.uint8).copy()
    for _ in range(rng.integers(0, 4)):
        last = data.size if rng.random() < 0.3 else min(data.size, SEGMENTS_OFFSET + 32)
        at = int(rng.integers(0, last))
        if rng.random() < 0.5:
            data[at] ^= 1 << rng.integers(8)
        else:  # a number, or its high bytes
            data[at // 4 * 4 :][:4] = rng.choice([0x00, 0x01, 0x7F, 0xFF])
    units = data.size // unit
    if rng.random() < 0.5:
        units = int(rng.integers(0, units + 1)) if rng.random() < 0.5 else max(0, units - 1)
    elif rng.random() < 0.1:
        units += int(rng.integers(1, 4))
    return np.resize(np.pad(data, (0, 4 * unit)), units * unit)


# ---- By the C interface --------------------------------------------------------------


def attack_codes(library: Library, rng: Rng, fences: Fences) -> None:
    """Any codes and scales may come; of results nothing may be written beside them."""
    codec, dtype = CODECS[rng.integers(len(CODECS))], DTYPES[rng.integers(3)]
    size, replicas = int(rng.integers(0, 700)), int(rng.integers(1, 4))
    fences.begin(f"codes: {codec!r}, {dtype}, {size} elements, {replicas} messages")
    blocks = native.num_blocks(size)
    messages = hostile_messages(rng, codec, replicas, size)
    sent = [fences.put(one.codes) for one in messages], [fences.put(one.scales) for one in messages]
    gradient = fences.put(rng.standard_normal(size).astype(dtype))
    residual = fences.put(rng.standard_normal(size).astype(np.float32))
    codes = fences.empty(blocks * native.code_bytes(codec), np.uint8)
    scales = fences.empty(blocks if native.has_scales(codec) else 0, np.uint16)
    total = fences.empty(size, dtype)
    library.encode(codec, gradient, residual, residual, codes, scales, 0.5)
    library.decode_sum(codec, *sent, total, 0.5)
    if codec in FIXED:
        bits = int(rng.choice([4, 8, 16]))
        counts = fences.empty(blocks * 16 * bits, np.uint8)
        assert library.count(codec, *sent, bits, counts)
        assert library.decode_counts(counts, bits, total, 0.5)
    else:
        assert library.reencode(codec, codec, *sent, gradient, residual, residual, codes, scales)


def attack_compact(library: Library, rng: Rng, fences: Fences) -> None:
    """Of which `test_compact_broken.py` says what the bytes have to become."""
    codec = COMPACTIBLE[rng.integers(len(COMPACTIBLE))]
    blocks, density = int(rng.choice([20, 70, 150])), rng.choice([0.0, 0.02, 0.1, 0.3])
    periods = [[], [1], [3]][rng.integers(3)]
    fences.begin(f"compact: {codec!r}, {blocks} blocks, density {density}, periods {periods}")
    wire = Wire(codec, lambda: iter([]))
    wire.rng = rng
    message = wire.random(blocks, density)
    given = fences.put(message)
    compact = fences.empty(library.pack_capacity(codec, blocks), np.uint8)
    size = library.pack(codec, blocks, given, compact, None, periods)
    assert size
    out = fences.empty(message.size, np.uint8)
    whole = compact[:size].copy()
    assert library.unpack(codec, blocks, fences.again(whole), out)
    np.testing.assert_array_equal(out, message)
    for _ in range(20):
        changed = fences.again(broken(rng, whole, unit=8))
        library.unpack(codec, blocks, changed, out)
    # Not of a message, but of as many bytes.
    noise = rng.integers(0, 256, message.size, np.uint8)
    assert library.pack(codec, blocks, fences.again(noise), compact, None, periods)


# ---- By the ops ----------------------------------------------------------------------


def tensor(array: Array) -> Any:
    """A tensor in the array's memory, which has to be aligned as TensorFlow wants it."""
    result = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    if array.size:
        assert np.asarray(memoryview(result)).ctypes.data == array.ctypes.data
    return result


def attack_messages(_: Library, rng: Rng, fences: Fences) -> None:
    """Four messages of a bucket, as an op gets them."""
    chosen = CODECS[rng.integers(len(CODECS))]
    codec, threshold = native.NAMES[chosen], 0.5 if chosen in FIXED else "auto"
    size = int(rng.integers(1, 700))
    fences.begin(f"messages: {codec} {threshold}, {size} elements")
    like, residuals = [tf.ones(size)], [tf.Variable(tf.zeros(size))]
    whole = ops.encode(like, residuals, codec, threshold).numpy()
    wide = 4 * native.num_blocks(size) * native.BLOCK_SIZE  # a message is one shard of four
    wide_like, wide_residuals = [tf.ones(wide)], [tf.Variable(tf.zeros(wide))]
    for _ in range(4):
        # All rows are broken alike, so that nothing but lengths and bytes is wrong.
        changed = np.tile(broken(rng, whole, unit=16).view(np.int64), (4, 1))
        message = tensor(fences.again(changed))
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            ops.decode(message, like, codec, threshold)
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            if threshold == "auto":
                ops.reencode(message, wide_like, wide_residuals, 0, 4, codec)
            else:
                ops.count(message, 4, codec, threshold)


def attack_rows(_: Library, rng: Rng, fences: Fences) -> None:
    codec = ["exact", *ops.library.codec_names()][rng.integers(5)]
    layers = 1 if codec == "exact" else int(rng.integers(1, 3))
    shapes = [(300, int(rng.integers(1, 200))), (9, 4)]
    fences.begin(f"rows: {codec}, {layers} layers, {shapes}")
    gradients = []
    for rows, columns in shapes:
        indices = rng.integers(0, rows, rng.integers(0, 9))
        values = rng.standard_normal((indices.size, columns)).astype(np.float32)
        gradients.append(tf.IndexedSlices(tf.constant(values), tf.constant(indices)))
    whole = ops.encode_rows(gradients, [], shapes, codec, layers).numpy()
    for _ in range(4):
        message = tensor(fences.again(broken(rng, whole, unit=64).view(np.int64)[None]))
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            ops.decode_rows(message, shapes, tf.float32, codec, layers)


def attack(*steps: str) -> None:
    """Attacks the library in each way, `steps` times, with each instruction set."""
    faulthandler.enable()
    _loader.load()
    library = Library(_loader.library_path())
    rng = np.random.default_rng(1)
    fences = Fences(rng)
    ways = attack_codes, attack_compact, attack_messages, attack_rows
    for target in library.supported_targets():
        assert library.force_target(target)
        for way, times in zip(ways, steps, strict=True):
            for _ in range(int(times)):
                way(library, rng, fences)
    os.ftruncate(1, 0)


def test_nothing_is_read_or_written_beside_messages() -> None:
    FORK_SERVER.output(f"{__name__}:attack", "300", "80", "40", "60")
