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
    HEADER_BYTES,
    Format,
    each_dtype,
    each_format,
    flat,
    in_blocks,
    make_replica,
    oracle_encode,
)
from tf_gc.ops import count, decode, encode, message_bits, two_bit_decode, two_bit_encode
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


def test_the_bytes_of_two_bit_messages() -> None:
    gradient, zero = tf.constant([0.5, -0.5, 0.0, np.nan, 0.5]), tf.Variable(tf.zeros(5))
    message = two_bit_encode([gradient], [zero], 0.5)
    header = bytes.fromhex("4743 01 01 0000003f 0100000000000000")
    assert message.numpy().tobytes() == header + bytes.fromhex("e1 c0") + bytes(30)
    header = bytes.fromhex("4743 01 03 0000003f 0100000000000000")
    total = count([message] * 3, 3, "two_bit", 0.5).numpy().tobytes()
    assert total == header + bytes.fromhex("3d 08 30") + bytes(61)
    total = count([message] * 8, 8, "two_bit", 0.5).numpy().tobytes()
    header = header[:3] + b"\x04" + header[4:]
    assert total == header + bytes.fromhex("08 f8 00 80 08") + bytes(123)
    total = count([message] * 130, 130, "two_bit", 0.5).numpy().tobytes()
    header = header[:3] + b"\x05" + header[4:]
    assert total == header + bytes.fromhex("8200 7eff 0000 0080 8200") + bytes(246)


def test_the_documented_byte() -> None:
    zeros = tf.Variable(tf.zeros(4))
    message = two_bit_encode([tf.constant([0.5, -0.5, 0.0, 0.5])], [zeros], 0.5)
    assert message.numpy().view(np.uint8)[0, HEADER_BYTES] == 0xE3


def test_the_bytes_of_one_bit_messages() -> None:
    gradient, zero = tf.constant([2.0, -0.5, 0.0, 0.75, 0.5]), tf.Variable(tf.zeros(5))
    message = encode([gradient], [zero], "one_bit", 0.5).numpy().tobytes()
    rest = bytes.fromhex("90") + bytes(15) + bytes.fromhex("803f") + bytes(14)
    assert message == bytes.fromhex("4743 01 06 0000003f 0100000000000000") + rest
    np.testing.assert_array_equal(zero, [1, 0.5, 1, -0.25, 1.5])
    zero.assign(tf.zeros(5))
    message = encode([gradient], [tf.Variable(zero)], "one_bit", 0.5)
    total = count([message] * 3, 3, "one_bit", 0.5)
    # Three times plus or minus 1, in units of 1; the padding is counted as minus.
    header = bytes.fromhex("4743 01 03 0000803f 0100000000000000")
    assert total.numpy().tobytes() == header + bytes.fromhex("3d d3") + b"\xdd" * 62
    message = encode([gradient], [zero], codec="one_bit").numpy().tobytes()
    rest = bytes.fromhex("b8") + bytes(15) + bytes.fromhex("403f") + bytes(14)  # 3.75 / 5
    assert message == bytes.fromhex("4743 01 07 00000000 0100000000000000") + rest


def test_the_bytes_of_messages_with_levels() -> None:
    def message_of(largest: float, small: float, codec: str) -> bytes:
        gradient = tf.constant([largest, -4.0, small, np.nan])
        return encode([gradient], [tf.Variable(tf.zeros(4))], codec).numpy().tobytes()

    def planes(*first: int) -> bytes:
        return b"".join(bytes([plane]) + bytes(15) for plane in first)

    scale = bytes.fromhex("8040")  # 4: the levels are 0.625, 2 and 4
    header = bytes.fromhex("4743 01 08 00000000 0100000000000000")
    body = planes(0b0111, 0b0011, 0b1010)
    assert message_of(4.0, 0.5, "three_bit") == header + body + scale + bytes(14)
    # The smallest level is 0.125.
    header = bytes.fromhex("4743 01 09 00000000 0100000000000000")
    body = planes(0b0111, 0b0011, 0b0011, 0b1010)
    assert message_of(4.5, 0.25, "four_bit") == header + body + scale + bytes(14)


def test_the_bits_of_a_message_follow_from_codec_threshold_and_replicas() -> None:
    for threshold in (0.5, 0.0):
        bits = [message_bits(n, "one_bit", threshold) for n in (1, 2, 7, 8, 127, 128)]
        assert bits == [1.125, 4, 4, 8, 8, 16]
    assert [message_bits(n, "two_bit", 0.5) for n in (1, 2, 7, 8, 127, 128)] == [2, 4, 4, 8, 8, 16]
    bits = {"two_bit": 2.125, "one_bit": 1.125, "three_bit": 3.125, "four_bit": 4.125}
    for codec, expected in bits.items():
        assert [message_bits(n, codec) for n in (1, 2, 1000)] == [expected] * 3
        with pytest.raises(ValueError, match="0 replicas"):
            message_bits(0, codec)
    for codec in ("two_bit", "one_bit"):
        with pytest.raises(ValueError, match=r"32768 replicas with threshold 0\.5"):
            message_bits(32768, codec, 0.5)


@each_format
def test_any_body_decodes_to_what_its_codes_say(form: Format) -> None:
    size, blocks = 1001, 8
    random = np.random.default_rng(1)
    like = [tf.zeros(size)]
    message = encode(like, [tf.Variable(tf.zeros(size))], form.codec, form.threshold)
    data = np.repeat(message.numpy().view(np.uint8), 5, axis=0)
    for _ in range(5):
        data[:, HEADER_BYTES:] = random.integers(256, size=data[:, HEADER_BYTES:].shape)
        (total,) = decode(data.view(np.int64), like, form.codec, form.threshold)
        sent = [Message(*form.parts(row, blocks)[:2], np.zeros(0, np.float32)) for row in data]
        expected = codec_cases.oracle_decode_sum(
            form.native, sent, size, np.dtype(np.float32), form.number
        )
        np.testing.assert_array_equal(total, expected)


# ---- Threads and buffers -----------------------------------------------------------


@matrix
@each_format
def test_many_threads_give_the_bits_of_one(form: Format) -> None:
    gradients, residuals = make_replica([(1_000_003,), (17,), (300_000,)])
    expected = oracle_encode(form, gradients, residuals)
    encode(gradients, residuals, form.codec, form.threshold)
    np.testing.assert_array_equal(in_blocks(residuals), expected.residual)


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


@each_format
def test_like_keeps_its_value_if_it_is_still_needed(form: Format) -> None:
    gradients, residuals = make_replica([(1000,)])
    before = gradients[0].numpy().copy()

    @tf.function
    def step(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        doubled = gradient * 2
        message = encode([doubled], residuals, form.codec, form.threshold)
        (total,) = decode(message, [doubled], form.codec, form.threshold)
        return doubled, total

    doubled, _ = step(gradients[0])
    np.testing.assert_array_equal(doubled, before * 2)


def test_kernels_exist_for_the_cpu() -> None:
    assert "CPU" in device_types()
