"""The ops of the scatter-gather through TensorFlow: shards, ledger, buffers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import two_bit as oracle
from tf_gc.ops import (
    count,
    decode_shards,
    message_bits,
    reencode,
    two_bit_decode,
    two_bit_encode,
)

HEADER_BYTES = 16
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
THRESHOLDS = [0.5, "auto"]
SHAPES = [(3, 50), (0,), (128,), (), (1, 129), (2000,)]  # 22 blocks
Replica = tuple[list[tf.Tensor], list[tf.Variable]]


def make_replica(shapes: list[tuple[int, ...]], dtype: type = np.float32, seed: int = 0) -> Replica:
    random = np.random.default_rng(seed)
    gradients = [tf.constant(random.normal(size=shape).astype(dtype)) for shape in shapes]
    residuals = [tf.Variable(random.normal(size=shape).astype(np.float32)) for shape in shapes]
    return gradients, residuals


def in_blocks(tensors: list[Any]) -> np.ndarray:
    """The bucket's elements in whole blocks, with zeros after the end of each tensor."""
    arrays = [np.ravel(getattr(tensor, "numpy", lambda t=tensor: t)()) for tensor in tensors]
    return np.concatenate([oracle.to_blocks(array).reshape(-1) for array in arrays])


def exchange(replicas: list[Replica], layers: int = 1) -> list[tf.Tensor]:
    """Runs both stages with automatic scales and returns the sums."""
    shards = len(replicas)
    rows = [
        two_bit_encode(gradients, residuals, shards=shards, skip=rank)
        for rank, (gradients, residuals) in enumerate(replicas)
    ]
    totals = [
        reencode([row[rank : rank + 1] for row in rows], *replica, rank, shards, layers)
        for rank, replica in enumerate(replicas)
    ]
    return decode_shards(totals, replicas[0][0], shards=shards, replicas=shards, layers=layers)


# ---- Encoding in shards ------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2, 3, 21, 22, 23, 50])
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_the_shards_are_the_blocks_of_the_bucket_in_order(
    threshold: float | str, shards: int
) -> None:
    gradients, residuals = make_replica(SHAPES)
    copies = [tf.Variable(residual) for residual in residuals]
    whole = two_bit_encode(gradients, residuals, threshold).numpy().view(np.uint8)[0]
    rows = two_bit_encode(gradients, copies, threshold, shards).numpy().view(np.uint8)

    size = -(-22 // shards)
    for residual, copy in zip(residuals, copies, strict=True):
        np.testing.assert_array_equal(residual.numpy(), copy.numpy())
    assert rows.shape[0] == shards
    assert (rows[:, 8:16].copy().view(np.int64) == size).all()
    np.testing.assert_array_equal(rows[:, :8], np.broadcast_to(whole[:8], (shards, 8)))
    codes_end = HEADER_BYTES + 32 * size
    padded = np.zeros(shards * size * 32, np.uint8)
    padded[: 22 * 32] = whole[HEADER_BYTES : HEADER_BYTES + 22 * 32]
    np.testing.assert_array_equal(rows[:, HEADER_BYTES:codes_end].reshape(-1), padded)
    scale_bytes = 2 if threshold == "auto" else 0
    scales_end = codes_end + scale_bytes * size
    padded = np.zeros(shards * size * scale_bytes, np.uint8)
    padded[: 22 * scale_bytes] = whole[HEADER_BYTES + 22 * 32 :][: 22 * scale_bytes]
    np.testing.assert_array_equal(rows[:, codes_end:scales_end].reshape(-1), padded)
    assert not rows[:, scales_end:].any()


@pytest.mark.parametrize("skip", [0, 1, 3, 7])
@pytest.mark.parametrize("shards", [8])
def test_a_skipped_shard_sends_zeros_and_keeps_its_residuals(shards: int, skip: int) -> None:
    gradients, residuals = make_replica(SHAPES)
    copies = [tf.Variable(residual) for residual in residuals]
    before = in_blocks(residuals)
    full = two_bit_encode(gradients, copies, shards=shards).numpy()
    rows = two_bit_encode(gradients, residuals, shards=shards, skip=skip).numpy()

    assert not rows[skip, 2:].any()
    rows[skip, 2:] = full[skip, 2:]
    np.testing.assert_array_equal(rows, full)
    own = slice(skip * 3 * 128, (skip + 1) * 3 * 128)
    expected = in_blocks(copies)
    expected[own] = before[own]
    np.testing.assert_array_equal(in_blocks(residuals), expected)


def test_a_bucket_of_empty_tensors_has_empty_shards() -> None:
    replicas = [make_replica([(0,), (0, 3)], seed=seed) for seed in range(2)]
    rows = two_bit_encode(*replicas[0], shards=2, skip=1)
    assert rows.shape == (2, 2)
    assert [total.shape for total in exchange(replicas)] == [(0,), (0, 3)]


def test_residuals_that_are_being_read_keep_what_is_not_encoded() -> None:
    """The encode writes new buffers then, into which the other residuals have to come."""
    gradients, residuals = make_replica(SHAPES)
    copies = [tf.Variable(residual) for residual in residuals]
    message = two_bit_encode(gradients, copies, shards=4, skip=2)

    @tf.function
    def step() -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        first = [residual.read_value() for residual in residuals]
        rows = two_bit_encode(gradients, residuals, shards=4, skip=2)
        with tf.control_dependencies([rows]):
            second = [residual.read_value() for residual in residuals]
        with tf.control_dependencies(second):
            total = reencode([rows[:1]] * 4, gradients, residuals, 2, 4)
        with tf.control_dependencies([total]):
            old = [tf.identity(value) for value in first], [tf.identity(v) for v in second]
            return *old, [residual.read_value() for residual in residuals], total

    before = in_blocks(residuals)
    first, second, third, total = step()
    np.testing.assert_array_equal(in_blocks(first), before)
    np.testing.assert_array_equal(in_blocks(second), in_blocks(copies))
    expected = reencode([message[:1]] * 4, gradients, copies, 2, 4)
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(in_blocks(third), in_blocks(copies))
    assert (in_blocks(third) != in_blocks(second)).any()


# ---- Automatic scales, in two stages -----------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shard", [0, 2, 3])
@pytest.mark.parametrize("split", [False, True])
def test_reencode_adds_the_other_replicas_to_its_own_numbers(
    dtype: type, shard: int, split: bool
) -> None:
    shards, size = 4, 6
    rows, columns = [], []
    for rank in range(shards):
        gradients, residuals = make_replica(SHAPES, dtype, rank)
        rows.append(two_bit_encode(gradients, residuals, shards=shards)[shard : shard + 1])
        data = rows[-1].numpy().view(np.uint8)[0, HEADER_BYTES:]
        columns.append((data[: size * 32], data[size * 32 : size * 34].view(np.uint16)))
    rows[shard] = tf.constant(-1, tf.int64, rows[shard].shape)  # not even a header
    del columns[shard]
    gradients, residuals = make_replica(SHAPES, dtype, 9)
    before = in_blocks(residuals)

    messages = rows if split else [tf.concat(rows[:3], axis=0), rows[3]]
    message = reencode(messages, gradients, residuals, shard, shards)

    own = slice(shard * size * 128, (shard + 1) * size * 128)
    elements = in_blocks([np.ones(shape, bool) for shape in SHAPES])[own]
    codes, scales, after = [], [], before.copy()
    p = in_blocks(gradients)[own]
    data = message.numpy().view(np.uint8)[0, HEADER_BYTES:]
    # The zeros after the end of a tensor are no elements of its last block: block by block.
    for block in range(p.size // 128):
        here = np.flatnonzero(elements[block * 128 : (block + 1) * 128]) + block * 128
        code, scale, kept = oracle.reencode_auto(
            [c[block * 32 : (block + 1) * 32] for c, _ in columns],
            [s[block : block + 1] for _, s in columns],
            p[here],
            before[own][here],
        )
        codes.append(code)
        scales.append(scale)
        after[own.start + here] = kept
    used = p.size // 128
    np.testing.assert_array_equal(data[: used * 32], np.concatenate(codes))
    found = data[size * 32 : size * 32 + used * 2].view(np.uint16)
    np.testing.assert_array_equal(found, np.concatenate(scales))
    assert not data[used * 32 : size * 32].any()
    assert not data[size * 32 + used * 2 :].any()
    np.testing.assert_array_equal(in_blocks(residuals), after)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    count=st.integers(1, 9),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=4),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
    layers=st.integers(1, 2),
)
def test_no_gradient_is_lost(
    count: int, sizes: list[int], dtype: type, seed: int, layers: int
) -> None:
    """What all decode, plus all residuals, is all gradients plus the residuals before."""
    replicas = [make_replica([(size,) for size in sizes], dtype, seed + i) for i in range(count)]
    expected = [
        sum(g[i].numpy().astype(np.float64) + r[i].numpy() for g, r in replicas)
        for i in range(len(sizes))
    ]
    sums = exchange(replicas, layers)
    for i, total in enumerate(sums):
        kept = sum(residuals[i].numpy().astype(np.float64) for _, residuals in replicas)
        # A scale is a bfloat16, which a float16 holds to rounding; so does either of a sum of two.
        tolerance = {np.float32: 1e-4, np.float16: 1e-2}.get(dtype, 1e-4 if layers == 1 else 8e-2)
        ledger = total.numpy().astype(np.float64) + kept
        np.testing.assert_allclose(ledger, expected[i], atol=tolerance)


def test_two_stages_of_one_replica_send_as_one_stage_does() -> None:
    gradients, residuals = make_replica(SHAPES)
    copies = [tf.Variable(residual) for residual in residuals]
    one_stage = two_bit_decode(two_bit_encode(gradients, copies), gradients)
    sums = exchange([(gradients, residuals)])
    for total, expected in zip(sums, one_stage, strict=True):
        np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(in_blocks(residuals), in_blocks(copies))


def test_the_second_layer_encodes_what_the_first_leaves() -> None:
    rows = [two_bit_encode(*make_replica(SHAPES, seed=seed), shards=4, skip=1) for seed in (1, 2)]
    others = [rows[0][1:2], rows[1]]  # five rows, of which four are for four shards
    gradients, residuals = make_replica(SHAPES)
    copies = [tf.Variable(residual) for residual in residuals]
    messages = [others[0], others[1][:3]]
    first = reencode(messages, gradients, residuals, 1, 4)
    both = reencode(messages, gradients, copies, 1, 4, layers=2)
    assert first.shape[0] == 1
    np.testing.assert_array_equal(both[:1], first)

    # What is left, alone in a bucket, as the gradients of one replica.
    own = slice(6 * 128, 12 * 128)
    left = tf.constant(in_blocks(residuals)[own])
    rest = tf.Variable(tf.zeros_like(left))
    second = two_bit_encode([left], [rest])
    np.testing.assert_array_equal(both[1:], second)
    np.testing.assert_array_equal(in_blocks(copies)[own], rest)
    assert np.abs(rest.numpy()).max() < np.abs(left.numpy()).max() / 2


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -(2.0**120)])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_what_is_not_finite_arrives_as_nan_and_the_owner_keeps_its_residual(
    bad: float, rank: int, layers: int
) -> None:
    replicas = [make_replica([(1000,)], seed=seed) for seed in range(3)]
    values = replicas[rank][0][0].numpy()
    values[[5, 500, 999]] = bad
    replicas[rank] = ([tf.constant(values)], replicas[rank][1])
    before = [residuals[0].numpy() for _, residuals in replicas]
    (total,) = exchange(replicas, layers)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(total)), [5, 500, 999])
    for owner, where in enumerate((5, 500, 999)):
        for replica in {owner, rank}:
            assert replicas[replica][1][0].numpy()[where] == before[replica][where]
    assert all(np.isfinite(residuals[0].numpy()).all() for _, residuals in replicas)


def test_many_threads_give_the_bits_of_one() -> None:
    gradients, residuals = make_replica([(800_003,)])
    copies = [tf.Variable(residual) for residual in residuals]
    own = slice(3126 * 128, None)  # of 6251 blocks
    gradient, before = gradients[0].numpy(), residuals[0].numpy()
    full = two_bit_encode(gradients, copies, shards=2).numpy()
    rows = two_bit_encode(gradients, residuals, shards=2, skip=1).numpy()
    np.testing.assert_array_equal(rows[0], full[0])
    after = np.concatenate([copies[0].numpy()[: own.start], before[own]])
    np.testing.assert_array_equal(residuals[0], after)

    message = reencode(full[1:].repeat(2, axis=0), gradients, residuals, 1, 2).numpy()
    sent, total = (row.view(np.uint8)[HEADER_BYTES:] for row in (full[1], message[0]))
    scale_bytes = slice(3126 * 32, 3126 * 32 + 3125 * 2)
    codes, scales, after[own] = oracle.reencode_auto(
        [sent[: 3125 * 32]], [sent[scale_bytes].view(np.uint16)], gradient[own], before[own]
    )
    np.testing.assert_array_equal(total[: 3125 * 32], codes)
    np.testing.assert_array_equal(total[scale_bytes].view(np.uint16), scales)
    np.testing.assert_array_equal(residuals[0], after)


# ---- A fixed threshold, in two stages ----------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("replicas", [*range(1, 10), 127, 128, 130])
def test_counts_decode_to_the_bits_of_the_messages(replicas: int, dtype: type) -> None:
    shapes = [(3, 50), (0,), (128,), (), (700,)]
    rows, whole = [], []
    for seed in range(replicas):
        gradients, residuals = make_replica(shapes, dtype, seed)
        if seed % 5 == 0:
            values = gradients[4].numpy()
            values[seed] = np.nan
            gradients[4] = tf.constant(values)
        copies = [tf.Variable(residual) for residual in residuals]
        whole.append(two_bit_encode(gradients, copies, 0.3))
        rows.append(two_bit_encode(gradients, residuals, 0.3, replicas))
    expected = two_bit_decode(whole, gradients, 0.3)
    shards = tf.stack(rows, axis=1)
    totals = [count(shard, replicas, "two_bit", 0.3) for shard in shards]
    sums = decode_shards(totals, gradients, "two_bit", 0.3, shards=replicas, replicas=replicas)
    bits = {4: np.uint32, 2: np.uint16}[np.dtype(dtype).itemsize]
    for total, one in zip(sums, expected, strict=True):
        np.testing.assert_array_equal(total.numpy().view(bits), one.numpy().view(bits))
    assert np.isnan(sums[4].numpy().astype(np.float32)).sum() == len(range(0, replicas, 5))


def test_the_bytes_of_a_message_of_counts() -> None:
    gradient, zero = tf.constant([0.5, -0.5, 0.0, np.nan, 0.5]), tf.Variable(tf.zeros(5))
    message = two_bit_encode([gradient], [zero], 0.5)
    header = bytes.fromhex("4743 01 03 0000003f 0100000000000000")
    total = count([message] * 3, 3, "two_bit", 0.5).numpy().tobytes()
    assert total == header + bytes.fromhex("3d 08 30") + bytes(61)
    total = count([message] * 8, 8, "two_bit", 0.5).numpy().tobytes()
    header = header[:3] + b"\x04" + header[4:]
    assert total == header + bytes.fromhex("08 f8 00 80 08") + bytes(123)
    total = count([message] * 130, 130, "two_bit", 0.5).numpy().tobytes()
    header = header[:3] + b"\x05" + header[4:]
    assert total == header + bytes.fromhex("8200 7eff 0000 0080 8200") + bytes(246)


def test_the_bits_of_a_message_follow_from_threshold_and_replicas() -> None:
    assert [message_bits(n, "two_bit", 0.5) for n in (1, 2, 7, 8, 127, 128)] == [2, 4, 4, 8, 8, 16]
    assert [message_bits(n) for n in (1, 2, 1000)] == [2.125] * 3
    with pytest.raises(ValueError, match=r"32768 replicas with threshold 0\.5"):
        message_bits(32768, "two_bit", 0.5)
    with pytest.raises(ValueError, match="0 replicas"):
        message_bits(0)


# ---- Buffers and shapes ------------------------------------------------------------


def test_like_keeps_its_value_if_it_is_still_needed() -> None:
    gradients, residuals = make_replica([(1000,)])
    before = gradients[0].numpy().copy()

    @tf.function
    def step(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        doubled = gradient * 2
        total = reencode(tf.zeros((1, 36), tf.int64), [doubled], residuals, 0, 1)
        (total,) = decode_shards(total, like=[doubled], shards=1, replicas=1)
        return doubled, total

    doubled, _ = step(gradients[0])
    np.testing.assert_array_equal(doubled, before * 2)
