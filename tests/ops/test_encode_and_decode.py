"""The ops of one stage through TensorFlow: the bytes of buckets, threads, buffers."""

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.bits import assert_same_bits
from tests.custom_ops import cases as codec_cases
from tests.custom_ops.cases import Message
from tests.ops.formats import BLOCK, Format, each_dtype, each_format, flat, make_replica
from tf_gc.ops import count, decode, decode_shards, encode, two_bit_decode, two_bit_encode


@each_dtype
@each_format
def test_a_bucket_is_its_tensors_blocks_in_order(form: Format, dtype: Any) -> None:
    # The last tensor is one that several threads share.
    gradients, residuals = make_replica([(3, 50), (0,), (128,), (), (1, 129), (700_001,)], dtype)
    tensors = zip(gradients, residuals, strict=True)
    expected = [
        codec_cases.oracle_encode(form.native, *map(flat, each), form.number) for each in tensors
    ]
    message = encode(gradients, residuals, form.codec, form.threshold)
    codes, scales, padding = form.parts(message, 2 + 1 + 1 + 2 + 5469)
    np.testing.assert_array_equal(codes, np.concatenate([each.codes for each in expected]))
    np.testing.assert_array_equal(scales, np.concatenate([each.scales for each in expected]))
    for residual, each in zip(residuals, expected, strict=True):
        np.testing.assert_array_equal(flat(residual), each.residual)
    assert not padding.any()
    assert padding.size < 16
    assert message.shape[1] % 2 == 0


@each_dtype
@each_format
def test_decode_adds_the_replicas_in_order(form: Format, dtype: Any) -> None:
    shapes = [(3, 50), (129,), (20_000,)]
    replicas = [make_replica(shapes, dtype, seed) for seed in range(3)]
    messages = [encode(*replica, form.codec, form.threshold) for replica in replicas]
    rows = [messages[0], tf.concat(messages[1:], axis=0)]
    sums = decode(rows, replicas[0][0], form.codec, form.threshold)
    assert [total.shape for total in sums] == shapes
    none = np.zeros(0, np.float32)
    sent = [Message(*form.parts(message, 161)[:2], none) for message in messages]
    total = codec_cases.oracle_decode_sum(
        form.native, sent, 161 * BLOCK, np.dtype(dtype), form.number
    )
    expected = np.split(total, [2 * BLOCK, 4 * BLOCK])
    for actual, blocks in zip(map(flat, sums), expected, strict=True):
        assert_same_bits(actual, blocks[: actual.size])


HALF, ONE, AUTO = "0000003f", "0000803f", "00000000"


@pytest.mark.parametrize(
    ("codec", "threshold", "replicas", "header"),
    [
        ("two_bit", 0.5, 0, f"01 {HALF}"),
        ("one_bit", 0.5, 0, f"06 {HALF}"),
        ("one_bit", "auto", 0, f"07 {AUTO}"),
        ("three_bit", "auto", 0, f"08 {AUTO}"),
        ("four_bit", "auto", 0, f"09 {AUTO}"),
        ("eight_bit", "auto", 0, f"0a {AUTO}"),
        # Counts of the messages of some replicas: of one bit what they count is 1.
        ("two_bit", 0.5, 7, f"03 {HALF}"),
        ("two_bit", 0.5, 8, f"04 {HALF}"),
        ("two_bit", 0.5, 128, f"05 {HALF}"),
        ("one_bit", 0.5, 7, f"03 {ONE}"),
    ],
)
def test_the_header_of_a_message(
    codec: str, threshold: float | str, replicas: int, header: str
) -> None:
    """A magic number, the version, the codec, the threshold and the number of blocks."""
    message = encode([tf.ones(200)], [tf.Variable(tf.zeros(200))], codec, threshold)
    if replicas:
        message = count([message] * replicas, replicas, codec, threshold)
    expected = bytes.fromhex(f"4743 01 {header} 0200000000000000")
    assert message.numpy().tobytes()[: len(expected)] == expected


def test_concurrent_encodes_of_the_same_residuals_do_not_deadlock_or_lose_mass() -> None:
    first, second = tf.Variable(tf.zeros(5000)), tf.Variable(tf.zeros(5000))
    gradient = tf.fill((5000,), 0.3)
    sent = []

    def work(order: list[tf.Variable]) -> None:
        for _ in range(50):
            message = two_bit_encode([gradient, gradient], order, 0.5)
            total = two_bit_decode(message, like=[gradient, gradient], threshold=0.5)
            sent.append(sum(float(tf.reduce_sum(tf.cast(t, tf.float64))) for t in total))

    threads = [
        threading.Thread(target=work, args=(order,), daemon=True)
        for order in ([first, second], [second, first])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # a deadlock ends with the time that a test may take
    left = float(tf.reduce_sum(tf.cast(first + second, tf.float64)))
    np.testing.assert_allclose(sum(sent) + left, 0.3 * 2 * 5000 * 100, rtol=1e-4)


@pytest.mark.parametrize("stages", [1, 2])
def test_like_keeps_its_value_if_it_is_still_needed(stages: int) -> None:
    gradients, residuals = make_replica([(1000,)])
    before = gradients[0].numpy().copy()

    @tf.function
    def step(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        doubled = gradient * 2
        message = encode([doubled], residuals)
        if stages == 1:
            return doubled, *decode(message, [doubled])
        return doubled, *decode_shards(message, [doubled], shards=1, replicas=1)

    doubled, _ = step(gradients[0])
    np.testing.assert_array_equal(doubled, before * 2)
