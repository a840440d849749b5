"""The one-bit ops through TensorFlow: both stages, ledger, shapes, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import one_bit as oracle
from tf_gc.ops import (
    count,
    decode,
    decode_shards,
    encode,
    message_bits,
    reencode,
    two_bit_decode,
    two_bit_encode,
)

HEADER_BYTES = 16
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
THRESHOLDS = [0.5, 0.0, "auto"]
SHAPES = [(3, 50), (0,), (128,), (), (1, 129), (2000,)]  # 22 blocks
InvalidArgument = tf.errors.InvalidArgumentError
Replica = tuple[list[tf.Tensor], list[tf.Variable]]


def make_replica(
    shapes: list[tuple[int, ...]] = SHAPES, dtype: type = np.float32, seed: int = 0
) -> Replica:
    random = np.random.default_rng(seed)
    gradients = [tf.constant(random.normal(size=shape).astype(dtype)) for shape in shapes]
    residuals = [tf.Variable(random.normal(size=shape).astype(np.float32)) for shape in shapes]
    return gradients, residuals


def exchange(replicas: list[Replica], threshold: float | str) -> list[tf.Tensor]:
    """Runs both stages and returns the sums."""
    shards = len(replicas)
    rows = [
        encode(*replica, "one_bit", threshold, shards, rank if threshold == "auto" else None)
        for rank, replica in enumerate(replicas)
    ]
    totals = []
    for rank, replica in enumerate(replicas):
        column = [row[rank : rank + 1] for row in rows]
        if threshold == "auto":
            totals.append(reencode(column, *replica, rank, shards, codec="one_bit"))
        else:
            totals.append(count(column, shards, "one_bit", threshold))
    return decode_shards(
        totals, replicas[0][0], "one_bit", threshold, shards=shards, replicas=shards
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_a_bucket_is_its_tensors_blocks_in_order(threshold: float | str, dtype: type) -> None:
    gradients, residuals = make_replica(dtype=dtype)
    before = [residual.numpy() for residual in residuals]
    message = encode(gradients, residuals, "one_bit", threshold)
    codes, scales = [], []
    for gradient, residual, r in zip(gradients, residuals, before, strict=True):
        flat = gradient.numpy().reshape(-1), r.reshape(-1)
        if isinstance(threshold, str):
            code, scale, expected = oracle.encode_auto(*flat)
        else:
            code, scale, expected = oracle.encode_fixed(*flat, threshold)
        codes.append(code)
        scales.append(scale.view(np.uint8))
        np.testing.assert_array_equal(residual.numpy().reshape(-1), expected)
    body = np.concatenate([*codes, *scales])
    data = message.numpy().view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(data[HEADER_BYTES : HEADER_BYTES + body.size], body)
    assert not data[HEADER_BYTES + body.size :].any()


def test_the_bytes_of_messages() -> None:
    gradient, zero = tf.constant([2.0, -0.5, 0.0, 0.75, 0.5]), tf.Variable(tf.zeros(5))
    message = encode([gradient], [zero], "one_bit", 0.5).numpy().tobytes()
    rest = bytes.fromhex("90") + bytes(15) + bytes.fromhex("803f") + bytes(14)
    assert message == bytes.fromhex("4743 01 06 0000003f 0100000000000000") + rest
    np.testing.assert_array_equal(zero, [1, 0.5, 1, -0.25, 1.5])
    zero.assign(tf.zeros(5))
    total = count(
        [encode([gradient], [tf.Variable(tf.zeros(5))], "one_bit", 0.5) for _ in range(3)],
        3,
        "one_bit",
        0.5,
    )
    # Three times plus or minus 1, in units of 1; the padding is counted as minus.
    header = bytes.fromhex("4743 01 03 0000803f 0100000000000000")
    assert total.numpy().tobytes() == header + bytes.fromhex("3d d3") + b"\xdd" * 62
    message = encode([gradient], [zero], codec="one_bit").numpy().tobytes()
    rest = bytes.fromhex("b8") + bytes(15) + bytes.fromhex("403f") + bytes(14)  # 3.75 / 5
    assert message == bytes.fromhex("4743 01 07 00000000 0100000000000000") + rest


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_no_gradient_is_lost_in_one_stage_or_two(
    threshold: float | str, dtype: type, replicas: int
) -> None:
    for stages in (1, 2):
        group = [make_replica(dtype=dtype, seed=seed) for seed in range(replicas)]
        expected = [
            sum(g[i].numpy().astype(np.float64) + r[i].numpy() for g, r in group)
            for i in range(len(SHAPES))
        ]
        if stages == 1:
            rows = tf.concat([encode(*replica, "one_bit", threshold) for replica in group], axis=0)
            sums = decode(rows, group[0][0], "one_bit", threshold)
        else:
            sums = exchange(group, threshold)
        for i, total in enumerate(sums):
            assert total.dtype == group[0][0][i].dtype
            kept = sum(residuals[i].numpy().astype(np.float64) for _, residuals in group)
            # 16-bit results round the sum itself.
            tolerance = 1e-4 if dtype == np.float32 else 5e-2
            ledger = total.numpy().astype(np.float64) + kept
            np.testing.assert_allclose(ledger, expected[i], atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("replicas", [1, 2, 7, 8, 128])
def test_counts_decode_to_the_bits_of_the_messages(replicas: int, dtype: type) -> None:
    shapes = [(3, 50), (0,), (700,)]
    group, whole = [], []
    for seed in range(replicas):
        gradients, residuals = make_replica(shapes, dtype, seed)
        if seed == 5:
            values = gradients[2].numpy()
            values[130] = np.nan
            gradients[2] = tf.constant(values)
        copies = [tf.Variable(residual) for residual in residuals]
        whole.append(encode(gradients, copies, "one_bit", -0.3))
        group.append((gradients, residuals))
    expected = decode(whole, group[0][0], "one_bit", -0.3)
    for total, one in zip(exchange(group, -0.3), expected, strict=True):
        np.testing.assert_array_equal(total.numpy().view("u1"), one.numpy().view("u1"))
    marked = np.isnan(expected[2].numpy().astype(np.float32))
    assert np.flatnonzero(marked).tolist() == (list(range(128, 256)) if replicas > 5 else [])


def test_a_skipped_shard_sends_zeros_and_keeps_its_residuals() -> None:
    gradients, residuals = make_replica([(1000,)])
    before = residuals[0].numpy()
    rows = encode(gradients, residuals, shards=4, skip=1, codec="one_bit").numpy()
    assert rows.shape == (4, 8)
    assert not rows[1, 2:].any()
    same = residuals[0].numpy() == before
    assert same[256:512].all()
    assert not np.delete(same, slice(256, 512)).all()


def test_many_threads_give_the_bits_of_one() -> None:
    gradients, residuals = make_replica([(1_000_003,)])
    _, _, expected = oracle.encode_auto(gradients[0].numpy(), residuals[0].numpy())
    encode(gradients, residuals, codec="one_bit")
    np.testing.assert_array_equal(residuals[0], expected)


def test_the_bits_of_a_message_follow_from_threshold_and_replicas() -> None:
    bits = [message_bits(n, "one_bit", 0.0) for n in (1, 2, 7, 8, 127, 128)]
    assert bits == [1.125, 4, 4, 8, 8, 16]
    assert [message_bits(n, codec="one_bit") for n in (1, 2, 1000)] == [1.125] * 3
    with pytest.raises(ValueError, match=r"32768 replicas with threshold 0\.5"):
        message_bits(32768, "one_bit", 0.5)


@pytest.mark.parametrize("known", [False, True])
def test_a_gradient_of_open_size_takes_that_of_its_residual(known: bool) -> None:
    residual = tf.Variable(tf.zeros((300,)), shape=(300,) if known else (None,))

    @tf.function
    def trace(g: tf.Tensor) -> tf.Tensor:
        # 16 bytes of header, 3 (2) blocks of 16 bytes and scales of 2, padded to 16.
        for threshold in (0.5, "auto"):
            message = encode([g], [residual], "one_bit", threshold)
            assert message.shape.as_list() == [1, 10 if known else None]
        rows = encode([g], [residual], shards=2, skip=0, codec="one_bit")
        assert rows.shape.as_list() == [2, 8 if known else None]
        total = reencode([rows[1:], rows[1:]], [g], [residual], 0, 2, codec="one_bit")
        assert total.shape.as_list() == [1, 8 if known else None]
        counts = count(encode([g], [residual], "one_bit", 0.5), 1, "one_bit", 0.5)
        assert counts.shape.as_list() == [1, 26 if known else None]
        return decode_shards([total] * 2, [g], shards=2, replicas=2, codec="one_bit")[0]

    concrete = trace.get_concrete_function(tf.TensorSpec((None,), tf.float32))
    assert concrete(tf.ones(300)).shape == (300,)


# ---- What is refused ---------------------------------------------------------------


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), 2.0**120, -(2.0**120)])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(InvalidArgument, match="threshold must be"):
        encode(*make_replica(), "one_bit", threshold)


def test_a_string_that_is_not_auto_is_refused() -> None:
    with pytest.raises(ValueError, match=r"threshold must be .*'0\.5'"):
        encode(*make_replica(), "one_bit", "0.5")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"shards": 0}, "shards"),
        ({"shards": 2, "skip": 2}, r"skip .* 2 shards, got 2"),
        ({"threshold": 0.5, "shards": 2, "skip": 0}, r"skip .*fixed threshold, got 0"),
    ],
)
def test_encode_refuses_wrong_shards(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        encode(*make_replica(), **arguments, codec="one_bit")


def calls() -> dict[str, tuple[tf.Tensor, Callable[[tf.Tensor], Any]]]:
    """For each op, two messages of 3 blocks that it takes, and the call."""
    replica = make_replica([(300,)])
    like = replica[0]
    auto = tf.repeat(encode(*replica, codec="one_bit"), 2, axis=0)
    fixed = tf.repeat(encode(*replica, "one_bit", 0.5), 2, axis=0)
    shards = encode(*replica, shards=2, codec="one_bit")
    counts = count(encode(*replica, "one_bit", 0.5, 2), 2, "one_bit", 0.5)
    return {
        "decode fixed": (fixed, lambda rows: decode(rows, like, "one_bit", 0.5)),
        "decode auto": (auto, lambda rows: decode(rows, like, codec="one_bit")),
        "reencode": (shards, lambda rows: reencode(rows, *replica, 0, 2, codec="one_bit")),
        "count": (fixed, lambda rows: count(rows, 2, "one_bit", 0.5)),
        "decode shards": (
            shards,
            lambda rows: decode_shards(rows, like, shards=2, replicas=2, codec="one_bit"),
        ),
        "decode counts": (
            tf.repeat(counts, 2, axis=0),
            lambda rows: decode_shards(rows, like, "one_bit", 0.5, shards=2, replicas=2),
        ),
    }


each_call = pytest.mark.parametrize("name", list(calls()))


@each_call
@pytest.mark.parametrize(
    ("byte", "named"),
    [(0, "magic"), (2, "wire version"), (3, "codec"), (7, "threshold"), (8, "blocks")],
)
def test_a_header_of_another_kind_is_refused(name: str, byte: int, named: str) -> None:
    rows, call = calls()[name]
    call(rows)
    data = rows.numpy().view(np.uint8)
    data[1, byte] ^= 0x11
    with pytest.raises(InvalidArgument, match=named):
        call(tf.constant(data.view(np.int64)))


@each_call
@pytest.mark.parametrize("shape", [(2, 4), (2, 9), (2, 0), (20,), (1, 2, 12), ()], ids=str)
def test_messages_of_the_wrong_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    _, call = calls()[name]
    with pytest.raises(InvalidArgument, match=r"messages must have the shape|magic"):
        call(tf.zeros(shape, tf.int64))


@each_call
def test_any_body_is_taken(name: str) -> None:
    rows, call = calls()[name]
    random = np.random.default_rng(1)
    data = rows.numpy().view(np.uint8)
    for _ in range(20):
        data[:, HEADER_BYTES:] = random.integers(256, size=data[:, HEADER_BYTES:].shape)
        call(tf.constant(data.view(np.int64)))


def test_codecs_and_thresholds_must_agree() -> None:
    gradients, residuals = make_replica([(300,)])
    fixed = encode(gradients, residuals, "one_bit", 0.0)
    with pytest.raises(InvalidArgument, match=r"threshold 0.*expects 0\.25"):
        decode(fixed, gradients, "one_bit", 0.25)
    with pytest.raises(InvalidArgument, match=r"codec 6, .*expects 7"):
        decode(fixed, gradients, codec="one_bit")
    decode(fixed, gradients, "one_bit", -0.0)
    with pytest.raises(InvalidArgument, match="shape"):
        two_bit_decode(fixed, gradients)
    with pytest.raises(InvalidArgument, match="shape"):
        decode(two_bit_encode(gradients, residuals), gradients, codec="one_bit")
    with pytest.raises(ValueError, match="threshold must be a number"):
        count(fixed, 1, "one_bit", "auto")
    with pytest.raises(InvalidArgument, match=r"1 rows.*`replicas`, got 2"):
        count([fixed, fixed], 1, "one_bit", 0.0)
