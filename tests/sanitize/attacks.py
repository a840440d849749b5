"""Broken messages, wrong calls and any numbers, for the native library as it was built.

Whatever comes, it must not read or write beside what it was given, and what is right has to come
back. Other tests say which error or result each call gives. In `make test` the memory is between
fences (tests/custom_ops/test_out_of_bounds.py); in `make sanitize` the library is built with
sanitizers, and this is the program: attacks.py SECONDS SEED.
"""

import collections
import contextlib
import os
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tests.custom_ops import native
from tests.custom_ops.cases import CODECS, DTYPES, FIXED, FLOAT32, SUMS, Array, hostile_messages
from tests.custom_ops.compact_cases import SEGMENTS_OFFSET, Wire, field_of, is_packed
from tests.custom_ops.native import COMPACTIBLE, Library
from tests.sanitize.wrong_calls import HUGE, WrongCalls
from tf_gc import ops
from tf_gc.ops import _loader

Rng = np.random.Generator


class Memory:
    """Gives memory that ends where its allocation ends, which AddressSanitizer knows."""

    alignment = 1  # in bytes, at least

    def __init__(self, rng: Rng, name: str = "") -> None:
        self.rng, self._name = rng, name

    def begin(self, case: str) -> None:
        """Leaves in the log what comes now, and nothing else."""
        os.ftruncate(1, 0)
        print(f"{self._name}{case}", flush=True)

    def put(self, data: Array) -> Array:
        """A copy."""
        shift = int(self.rng.integers(9)) * max(data.itemsize, self.alignment)
        result = np.empty(shift + data.nbytes, np.uint8)[shift:]
        result[:] = data.reshape(-1).view(np.uint8)
        return result.view(data.dtype).reshape(data.shape)

    def again(self, data: Array) -> Array:
        """A copy, which may be where the first one was."""
        return self.put(data)

    def tensor(self, data: Array) -> Any:
        return tf.constant(data)

    def empty(self, size: int, dtype: Any) -> Array:
        return self.put(np.zeros(size, dtype))


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


def any_numbers(rng: Rng, *shape: int, dtype: Any = FLOAT32, any_bits: bool = True) -> Array:
    """Numbers of any bits, or moderate ones."""
    dtype = np.dtype(dtype)
    if any_bits and rng.random() < 0.5:
        data = rng.bytes(int(np.prod(shape)) * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(shape)
    return (100 * rng.standard_normal(shape)).astype(dtype)


# ---- By the C interface --------------------------------------------------------------


def attack_codes(library: Library, rng: Rng, memory: Memory) -> None:
    """Any codes and scales may come; of results nothing may be written beside them."""
    codec, dtype = CODECS[rng.integers(len(CODECS))], DTYPES[rng.integers(3)]
    size = int(rng.integers(0, rng.choice([5000, 700])))
    replicas = int(rng.integers(1, 260 if rng.random() < 0.1 else 8))
    memory.begin(f"codes: {codec!r}, {dtype}, {size} elements, {replicas} messages")
    blocks = native.num_blocks(size)
    messages = hostile_messages(rng, codec, replicas, size)
    sent = [memory.put(one.codes) for one in messages], [memory.put(one.scales) for one in messages]
    gradient = memory.put(any_numbers(rng, size, dtype=dtype))
    before = memory.put(any_numbers(rng, size))
    after = before if rng.random() < 0.5 else memory.empty(size, np.float32)
    codes = memory.empty(blocks * native.code_bytes(codec), np.uint8)
    scales = memory.empty(blocks if native.has_scales(codec) else 0, np.uint16)
    total = memory.empty(size, dtype)
    if rng.random() < 0.3:
        before = after = None
    library.encode(codec, gradient, before, after, codes, scales, 0.5)
    library.decode_sum(codec, *sent, total, 0.5)
    if codec in FIXED:
        bits = int(rng.choice([4, 8, 16]))
        counts = memory.empty(blocks * 16 * bits, np.uint8)
        assert library.count(codec, *sent, bits, counts)
        assert library.decode_counts(counts, bits, total, 0.5)
        return
    finer = [of_sum for of_codec, of_sum in SUMS if of_codec == codec]
    of_sum = finer[rng.integers(len(finer))]
    codes = memory.empty(blocks * native.code_bytes(of_sum), np.uint8)
    arguments = (gradient, before, after, codes, scales)
    assert library.reencode(codec, of_sum, *sent, *arguments)


def attack_compact(library: Library, rng: Rng, memory: Memory) -> None:
    """Of which `test_compact_broken.py` says what the bytes have to become."""
    codec = COMPACTIBLE[rng.integers(len(COMPACTIBLE))]
    blocks, density = int(rng.choice([20, 70, 150, 400])), rng.choice([0.0, 0.02, 0.1, 0.3])
    periods = [[], [1], [3]][rng.integers(3)]
    memory.begin(f"compact: {codec!r}, {blocks} blocks, density {density}, periods {periods}")
    memory.alignment = 16  # as messages are
    wire = Wire(codec, lambda: iter([]))
    wire.rng = rng
    columns = periods and rng.random() < 0.5
    message = wire.by_column(blocks, periods[0]) if columns else wire.random(blocks, density)
    given = memory.put(message)
    compact = memory.empty(library.pack_capacity(codec, blocks), np.uint8)
    size = library.pack(codec, blocks, given, compact, None, periods)
    assert size
    out = memory.empty(message.size, np.uint8)
    whole = compact[:size].copy()
    assert library.unpack(codec, blocks, memory.again(whole), out)
    np.testing.assert_array_equal(out, message)
    coded = is_packed(whole) and field_of(whole, "words")[0] > 0
    for _ in range(60):
        of_wire = coded and rng.random() < 0.5
        changed = wire.changed(whole) if of_wire else broken(rng, whole, unit=8)
        library.unpack(codec, blocks, memory.again(changed), out)
    # Not of a message, but of as many bytes.
    noise = rng.integers(0, 256, message.size, np.uint8)
    assert library.pack(codec, blocks, memory.again(noise), compact, None, periods)
    library.pack_capacity(codec, int(rng.choice(HUGE)))


# ---- By the ops ----------------------------------------------------------------------


def attack_messages(_: Library, rng: Rng, memory: Memory) -> None:
    """Four messages of a bucket, as an op gets them."""
    chosen = CODECS[rng.integers(len(CODECS))]
    codec, threshold = native.NAMES[chosen], 0.5 if chosen in FIXED else "auto"
    size = int(rng.integers(1, 700))
    memory.begin(f"messages: {codec} {threshold}, {size} elements")
    like, residuals = [tf.ones(size)], [tf.Variable(tf.zeros(size))]
    whole = ops.encode(like, residuals, codec, threshold).numpy()
    wide = 4 * native.num_blocks(size) * native.BLOCK_SIZE  # a message is one shard of four
    wide_like, wide_residuals = [tf.ones(wide)], [tf.Variable(tf.zeros(wide))]
    for _ in range(4):
        # All rows are broken alike, so that nothing but lengths and bytes is wrong.
        changed = np.tile(broken(rng, whole, unit=16).view(np.int64), (4, 1))
        message = memory.tensor(changed)
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            ops.decode(message, like, codec, threshold)
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            if threshold == "auto":
                ops.reencode(message, wide_like, wide_residuals, 0, 4, codec)
            else:
                ops.count(message, 4, codec, threshold)


def attack_rows(_: Library, rng: Rng, memory: Memory) -> None:
    codec = str(rng.choice(["exact", *ops.library.codec_names()]))
    layers = 1 if codec == "exact" else int(rng.integers(1, 3))
    keeps = layers == 1 and codec != "exact" and rng.random() < 0.5
    shapes = [(300, int(rng.integers(1, rng.choice([9, 200])))), (9, 4)]
    memory.begin(f"rows: {codec}, {layers} layers, {shapes}, residuals: {keeps}")
    dtype = DTYPES[rng.integers(3)]
    residuals = [tf.Variable(any_numbers(rng, *shape)) for shape in shapes if keeps]
    gradients = []
    for rows, columns in shapes:
        indices = rng.integers(0, rows, rng.integers(0, 9))
        given = any_numbers(rng, indices.size, columns, dtype=dtype)
        gradients.append(tf.IndexedSlices(tf.constant(given), tf.constant(indices)))
    whole = ops.encode_rows(gradients, residuals, shapes, codec, layers).numpy()
    for _ in range(12):
        message = memory.tensor(broken(rng, whole, unit=64).view(np.int64)[None])
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            tables = ops.decode_rows(message, shapes, dtype, codec, layers)
            for of_table, (count, _) in zip(tables, shapes, strict=True):
                within = np.concatenate([[-1], of_table.indices, [count]])
                assert (np.diff(within) > 0).all()


def attack_factors(_: Library, rng: Rng, memory: Memory) -> None:
    rank = int(rng.integers(1, rng.choice([4, 41])))
    rows, columns = (int(rng.integers(1, most)) for most in rng.choice([20, 150], 2))
    dtype = DTYPES[rng.integers(3)]
    memory.begin(f"factors: {rows} rows, {columns} columns, rank {rank}, {dtype}")
    gradients = [tf.constant(any_numbers(rng, rows, columns, dtype=dtype))]
    residuals = [tf.Variable(any_numbers(rng, rows, columns, any_bits=False))]
    factors, p = (tf.constant(any_numbers(rng, rank * side)) for side in (columns, rows))
    arguments = [rows], rank
    projected = ops.project_factors(gradients, residuals, [factors], *arguments)
    for sums in (projected, p, p[1:]):
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            message, basis = ops.encode_factors(gradients, residuals, sums, *arguments)
            for received in (message, factors, message[1:]):
                ops.decode_factors(received, basis, [factors], gradients, *arguments)


def make_wrong_call(_: Library, rng: Rng, memory: Memory) -> str:
    memory.begin("a wrong call")
    return WrongCalls(_loader.load(), rng).call()


WAYS = attack_codes, attack_compact, attack_messages, attack_rows, attack_factors, make_wrong_call


def main(seconds: str, first: str) -> None:
    library = Library(_loader.library_path())
    targets = library.supported_targets()
    ends: collections.Counter[str] = collections.Counter()
    end, seed = time.monotonic() + float(seconds), int(first)
    # Until there was an attack of each kind, and each of seven ops was right and has refused.
    while time.monotonic() < end or len(ends) < len(WAYS) - 1 + 2 * 7:
        rng = np.random.default_rng(seed)
        assert library.force_target(targets[rng.integers(len(targets))])
        way = WAYS[rng.integers(len(WAYS))]
        ends[way(library, rng, Memory(rng, f"seed {seed}, ")) or way.__name__] += 1
        seed += 1
    os.ftruncate(1, 0)
    for result, count in sorted(ends.items()):
        print(result, count)


if __name__ == "__main__":
    main(*sys.argv[1:])
