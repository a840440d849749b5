"""The ops of one stage through TensorFlow, for each codec: bits, ledger, buffers, shapes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import cases, matrix
from tests.custom_ops import cases as codec_cases
from tests.custom_ops.cases import Message
from tests.ops.formats import (
    BLOCK,
    Format,
    each_dtype,
    each_format,
    flat,
    in_blocks,
    make_replica,
    oracle_encode,
)
from tf_gc.ops import (
    count,
    decode,
    decode_shards,
    encode,
    message_bits,
    two_bit_decode,
    two_bit_encode,
)
from tf_gc.ops.library import device_types

# ---- The bits of messages and sums -------------------------------------------------


@each_dtype
@each_format
def test_a_bucket_is_its_tensors_blocks_in_order(form: Format, dtype: Any) -> None:
    shapes = [(3, 50), (0,), (128,), (), (1, 129), (70_001,)]
    gradients, residuals = make_replica(shapes, dtype)
    expected = oracle_encode(form, gradients, residuals)
    message = encode(gradients, residuals, form.codec, form.threshold)
    codes, scales, padding = form.parts(message, 2 + 1 + 1 + 2 + 547)
    np.testing.assert_array_equal(codes, expected.codes)
    np.testing.assert_array_equal(scales, expected.scales)
    np.testing.assert_array_equal(in_blocks(residuals), expected.residual)
    assert not padding.any()
    assert padding.size < 16
    assert message.shape[1] % 2 == 0


@cases("split", True, False)
@each_dtype
@each_format
def test_decode_adds_the_replicas_in_order(form: Format, dtype: Any, split: bool) -> None:
    shapes = [(3, 50), (129,), (20_000,)]
    replicas = [make_replica(shapes, dtype, seed) for seed in range(3)]
    messages = [encode(*replica, form.codec, form.threshold) for replica in replicas]
    rows = messages if split else tf.concat(messages, axis=0)
    like = replicas[0][0]
    sums = decode(rows, like, form.codec, form.threshold)
    assert [total.shape for total in sums] == shapes
    sent = []
    for message in messages:
        codes, scales, _ = form.parts(message, 161)
        sent.append(Message(codes, scales, np.zeros(0, np.float32)))
    total = codec_cases.oracle_decode_sum(
        form.native, sent, 161 * BLOCK, np.dtype(dtype), form.number
    ).reshape(161, BLOCK)
    blocks = np.split(total, [2, 4])
    for actual, expected in zip(sums, blocks, strict=True):
        codec_cases.assert_same_bits(flat(actual), expected.reshape(-1)[: flat(actual).size])


HEADERS = {codec: f"4743 01 {codec:02x} %s 0100000000000000" for codec in range(1, 10)}
HALF, ONE, AUTO = "0000003f", "0000803f", "00000000"


def planes(*first: int) -> str:
    return "".join(bytes([plane, *bytes(15)]).hex() for plane in first)


@pytest.mark.parametrize(
    ("codec", "threshold", "gradient", "header", "body"),
    [
        ("two_bit", 0.5, [0.5, -0.5, 0.0, np.nan, 0.5], HEADERS[1] % HALF, "e1 c0" + "00" * 30),
        ("one_bit", 0.5, [2, -0.5, 0, 0.75, 0.5], HEADERS[6] % HALF, f"{planes(0x90)} 803f"),
        ("one_bit", "auto", [3, -0.5, 1, 0.5, 2.5], HEADERS[7] % AUTO, f"{planes(0xB8)} c03f"),
        # The scale is 4: the levels are 0.625, 2 and 4, and with four bits from 0.125 on.
        (
            *("three_bit", "auto", [4, -4, 0.5, np.nan], HEADERS[8] % AUTO),
            f"{planes(0b0111, 0b0011, 0b1010)} 8040",
        ),
        (
            *("four_bit", "auto", [4.5, -4, 0.25, np.nan], HEADERS[9] % AUTO),
            f"{planes(0b0111, 0b0011, 0b0011, 0b1010)} 8040",
        ),
    ],
)
def test_the_bytes_of_messages(
    codec: str, threshold: float | str, gradient: list[float], header: str, body: str
) -> None:
    residual = tf.Variable(tf.zeros(len(gradient)))
    message = encode([tf.constant(gradient, tf.float32)], [residual], codec, threshold)
    expected = bytes.fromhex(header + body)
    assert message.numpy().tobytes() == expected + bytes(-len(expected) % 16)


@pytest.mark.parametrize(
    ("codec", "replicas", "header", "body"),
    [
        ("two_bit", 3, HEADERS[3] % HALF, "3d 08 30" + "00" * 61),
        ("two_bit", 8, HEADERS[4] % HALF, "08 f8 00 80 08" + "00" * 123),
        ("two_bit", 130, HEADERS[5] % HALF, "8200 7eff 0000 0080 8200" + "00" * 246),
        # Plus or minus 1, whatever the threshold; the padding is counted as minus.
        ("one_bit", 3, HEADERS[3] % ONE, "3d d3" + "dd" * 62),
    ],
)
def test_the_bytes_of_counts(codec: str, replicas: int, header: str, body: str) -> None:
    gradient = [0.5, -0.5, 0.0, np.nan, 0.5] if codec == "two_bit" else [1.0, 0.5, -1.0, 2.0]
    message = encode([tf.constant(gradient)], [tf.Variable(tf.zeros(len(gradient)))], codec, 0.5)
    total = count([message] * replicas, replicas, codec, 0.5)
    assert total.numpy().tobytes() == bytes.fromhex(header + body)


def test_the_bits_of_a_message_follow_from_codec_threshold_and_replicas() -> None:
    replicas = (1, 2, 7, 8, 127, 128)
    assert [message_bits(n, "one_bit", 0.0) for n in replicas] == [1.125, 4, 4, 8, 8, 16]
    assert [message_bits(n, "two_bit", 0.5) for n in replicas] == [2, 4, 4, 8, 8, 16]
    bits = {"two_bit": 2.125, "one_bit": 1.125, "three_bit": 3.125, "four_bit": 4.125}
    for codec, expected in bits.items():
        assert [message_bits(n, codec) for n in (1, 1000)] == [expected] * 2
    with pytest.raises(ValueError, match="0 replicas"):
        message_bits(0, "two_bit")
    with pytest.raises(ValueError, match=r"32768 replicas with threshold 0\.5"):
        message_bits(32768, "one_bit", 0.5)


# ---- Threads and buffers -----------------------------------------------------------


@matrix
@each_format
def test_many_threads_give_the_bits_of_one(form: Format) -> None:
    gradients, residuals = make_replica([(1_000_003,), (17,), (300_000,)])
    expected = oracle_encode(form, gradients, residuals)
    encode(gradients, residuals, form.codec, form.threshold)
    np.testing.assert_array_equal(in_blocks(residuals), expected.residual)


def test_concurrent_encodes_of_the_same_residuals_do_not_deadlock_or_lose_mass() -> None:
    size = 400_000  # encodes last long enough to meet
    first, second = tf.Variable(tf.zeros(size)), tf.Variable(tf.zeros(size))
    gradient = tf.fill((size,), 0.25)
    messages = []

    def work(order: list[tf.Variable]) -> None:
        for _ in range(20):
            messages.append(two_bit_encode([gradient, gradient], order, 0.5))

    threads = [
        threading.Thread(target=work, args=(order,), daemon=True)
        for order in ([first, second], [second, first])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # a deadlock ends with the time that a test may take
    sent = [
        total
        for message in messages
        for total in two_bit_decode(message, like=[gradient, gradient], threshold=0.5)
    ]
    mass = sum(float(tf.reduce_sum(tf.cast(t, tf.float64))) for t in (*sent, first, second))
    assert mass == 0.25 * 2 * size * 40


@each_format
def test_a_residual_that_is_being_read_keeps_its_old_value_for_the_reader(form: Format) -> None:
    gradients, residuals = make_replica([(1000,)])
    expected = oracle_encode(form, gradients, residuals)

    @tf.function
    def step() -> tuple[tf.Tensor, tf.Tensor]:
        old = residuals[0].read_value()
        message = encode(gradients, residuals, form.codec, form.threshold)
        with tf.control_dependencies([message]):
            return tf.identity(old), residuals[0].read_value()

    before = residuals[0].numpy()
    old, new = step()
    np.testing.assert_array_equal(old, before)
    np.testing.assert_array_equal(new, expected.residual[:1000])


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


def test_kernels_exist_for_the_cpu() -> None:
    assert "CPU" in device_types()
