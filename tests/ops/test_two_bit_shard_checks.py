"""What the ops of the scatter-gather refuse, by name and value, and what shape functions know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_gc.ops import count, decode_shards, reencode, two_bit_encode

HEADER_BYTES = 16
InvalidArgument = tf.errors.InvalidArgumentError
Bucket = tuple[list[tf.Tensor], list[tf.Variable]]


def make_bucket() -> Bucket:
    values = np.random.default_rng(0).normal(size=(2, 300)).astype(np.float32)
    return [tf.constant(values[0])], [tf.Variable(values[1])]


def small(threshold: float | str = "auto", shards: int = 2) -> tuple[tf.Tensor, Bucket]:
    """Messages of a bucket of 300 elements, and the bucket."""
    gradients, residuals = make_bucket()
    return two_bit_encode(gradients, residuals, threshold, shards), (gradients, residuals)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"shards": 0}, "shards"),
        ({"shards": -2}, "shards"),
        ({"shards": 2, "skip": 2}, r"skip .* 2 shards, got 2"),
        ({"shards": 2, "skip": -3}, r"skip .*got -3"),
        ({"skip": 1}, r"skip .* 1 shards, got 1"),
        ({"threshold": 0.5, "shards": 2, "skip": 0}, r"skip .*fixed threshold, got 0"),
    ],
)
def test_encode_refuses_wrong_shards(arguments: dict[str, Any], named: str) -> None:
    gradients, residuals = make_bucket()
    before = residuals[0].numpy()
    with pytest.raises(InvalidArgument, match=named):
        two_bit_encode(gradients, residuals, **arguments)
    np.testing.assert_array_equal(residuals[0], before)


def test_more_words_than_a_shape_can_count_are_refused() -> None:
    gradients, residuals = make_bucket()
    with pytest.raises(tf.errors.OpError):
        two_bit_encode(gradients, residuals, shards=2**61)


@pytest.mark.parametrize(("shard", "shards"), [(2, 2), (5, 2), (-1, 2), (0, 0)])
def test_reencode_refuses_a_shard_that_there_is_not(shard: int, shards: int) -> None:
    rows, replica = small()
    with pytest.raises(InvalidArgument, match="shard"):
        reencode(rows, *replica, shard, shards)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_as_many_rows_as_shards_or_replicas_are_needed(rows: int) -> None:
    auto, replica = small()
    fixed, _ = small(0.5)
    counts = count(fixed, 2, "two_bit", 0.5)

    def some(messages: tf.Tensor) -> tf.Tensor:
        return tf.repeat(messages[:1], rows, axis=0)

    with pytest.raises(InvalidArgument, match=rf"2 rows.*`shards`, got {rows}"):
        reencode(some(auto), *replica, 0, 2)
    with pytest.raises(InvalidArgument, match=rf"2 rows.*`replicas`, got {rows}"):
        count(some(fixed), 2, "two_bit", 0.5)
    with pytest.raises(InvalidArgument, match=rf"2 rows.*`shards`, got {rows}"):
        decode_shards(some(auto), replica[0], shards=2, replicas=2)
    with pytest.raises(InvalidArgument, match=rf"2 rows.*`shards`, got {rows}"):
        decode_shards(some(counts), replica[0], "two_bit", 0.5, shards=2, replicas=2)
    with pytest.raises(InvalidArgument, match=rf"2 times 2 layers rows.*`shards`, got {rows}"):
        decode_shards(some(auto), replica[0], shards=2, replicas=2, layers=2)


@pytest.mark.parametrize("layers", [0, 3, 1 << 40])
def test_a_sum_has_one_or_two_layers(layers: int) -> None:
    rows, replica = small()
    with pytest.raises((InvalidArgument, ValueError), match=rf"layers.*{layers}"):
        reencode(rows, *replica, 0, 2, layers)
    with pytest.raises((InvalidArgument, ValueError), match=rf"layers.*{layers}"):
        decode_shards(rows, replica[0], shards=2, replicas=2, layers=layers)


def test_counts_have_one_layer() -> None:
    fixed, replica = small(0.5)
    counts = tf.repeat(count(fixed, 2, "two_bit", 0.5), 4, axis=0)
    with pytest.raises(InvalidArgument, match=r"layers must be.* 1 with a fixed threshold, got 2"):
        decode_shards(counts, replica[0], "two_bit", 0.5, shards=2, replicas=2, layers=2)


def calls() -> dict[str, tuple[tf.Tensor, Callable[[tf.Tensor], Any]]]:
    """For each op, messages that it takes and the call."""
    auto, replica = small()
    fixed, _ = small(0.5)
    counts = tf.repeat(count(fixed, 2, "two_bit", 0.5), 2, axis=0)
    like = replica[0]
    return {
        "reencode": (auto, lambda rows: reencode(rows, *replica, 0, 2)),
        "count": (fixed, lambda rows: count(rows, 2, "two_bit", 0.5)),
        "decode auto": (
            auto,
            lambda rows: decode_shards(rows, like, shards=2, replicas=2),
        ),
        "decode counts": (
            counts,
            lambda rows: decode_shards(rows, like, "two_bit", 0.5, shards=2, replicas=2),
        ),
    }


each_call = pytest.mark.parametrize("name", ["reencode", "count", "decode auto", "decode counts"])


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
@pytest.mark.parametrize("shape", [(2, 4), (2, 9), (2, 0), (2, 1), (20,), (1, 2, 12), ()], ids=str)
def test_messages_of_the_wrong_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    _, call = calls()[name]
    with pytest.raises(InvalidArgument, match=r"messages must have the shape|magic"):
        call(tf.zeros(shape, tf.int64))


def test_a_refused_message_leaves_the_residuals() -> None:
    rows, (gradients, residuals) = small()
    before = residuals[0].numpy()
    with pytest.raises(InvalidArgument):
        reencode(tf.zeros_like(rows), gradients, residuals, 0, 2)
    np.testing.assert_array_equal(residuals[0], before)


def test_codec_and_threshold_must_agree() -> None:
    auto, (like, _) = small()
    fixed, _ = small(0.5)
    counts = count(fixed, 2, "two_bit", 0.5)
    with pytest.raises(InvalidArgument, match=r"threshold 0\.5.*expects 0\.25"):
        count(fixed, 2, "two_bit", 0.25)
    with pytest.raises(InvalidArgument, match="messages must have the shape"):
        count(auto, 2, "two_bit", 0.5)
    with pytest.raises(InvalidArgument, match=r"threshold 0\.5.*expects 0\.25"):
        decode_shards([counts] * 2, like, "two_bit", 0.25, shards=2, replicas=2)
    # Counts of another width, and codes in their place.
    with pytest.raises(InvalidArgument, match="messages must have the shape"):
        decode_shards([counts] * 2, like, "two_bit", 0.5, shards=2, replicas=8)
    with pytest.raises(InvalidArgument, match="messages must have the shape"):
        decode_shards(fixed, like, "two_bit", 0.5, shards=2, replicas=2)


@pytest.mark.parametrize("replicas", [0, -1, 32768])
def test_a_number_of_replicas_out_of_range_is_refused(replicas: int) -> None:
    fixed, (like, _) = small(0.5)
    with pytest.raises(InvalidArgument, match=rf"replicas.*{replicas}"):
        count(fixed, replicas, "two_bit", 0.5)
    with pytest.raises(InvalidArgument, match=rf"replicas.*{replicas}"):
        decode_shards(fixed, like, "two_bit", 0.5, shards=2, replicas=replicas)


@pytest.mark.parametrize("threshold", [0, -0.5, float("nan"), float("inf"), 1e-40, 2e36])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    fixed, (like, _) = small(0.5)
    with pytest.raises(InvalidArgument, match="threshold must be"):
        count(fixed, 2, "two_bit", threshold)
    with pytest.raises(InvalidArgument, match="threshold must be"):
        decode_shards(fixed, like, "two_bit", threshold, shards=2, replicas=2)


@pytest.mark.parametrize("threshold", ["auto", "0.5"])
def test_only_a_fixed_threshold_can_be_counted(threshold: Any) -> None:
    with pytest.raises(ValueError, match="threshold must be"):
        count(small(0.5)[0], 2, "two_bit", threshold)


def test_empty_lists_and_residuals_that_do_not_fit_are_refused() -> None:
    rows, (gradients, residuals) = small()
    with pytest.raises(ValueError, match="`messages` is empty"):
        reencode([], gradients, residuals, 0, 2)
    with pytest.raises(ValueError, match="`gradients` is empty"):
        reencode(rows, [], [], 0, 2)
    with pytest.raises(ValueError, match=r"1 gradients.*2"):
        reencode(rows, gradients, residuals * 2, 0, 2)
    with pytest.raises(ValueError, match="`messages` is empty"):
        count([], 2, "two_bit", 0.5)
    with pytest.raises(ValueError, match="`like` is empty"):
        decode_shards(rows, [], shards=2, replicas=2)
    with pytest.raises(InvalidArgument, match=r"residual 0 .*shape \[300\]"):
        reencode(rows, gradients, [tf.Variable(tf.zeros(299))], 0, 2)


@pytest.mark.parametrize("name", ["count", "decode auto", "decode counts", "reencode"])
def test_any_body_is_taken(name: str) -> None:
    rows, call = calls()[name]
    random = np.random.default_rng(1)
    data = rows.numpy().view(np.uint8)
    for _ in range(20):
        data[:, HEADER_BYTES:] = random.integers(256, size=data[:, HEADER_BYTES:].shape)
        call(tf.constant(data.view(np.int64)))


def test_shape_functions_know_the_messages_and_the_sums() -> None:
    residuals = [tf.Variable(tf.zeros((129,))), tf.Variable(tf.zeros((2, 5)))]

    @tf.function
    def trace(g: tf.Tensor, h: tf.Tensor) -> None:
        # 3 blocks in 2 shards of 2: 16 bytes of header, 64 of codes, 4 of scales, padded to 16.
        auto = two_bit_encode([g, h], residuals, shards=2, skip=0)
        assert auto.shape == [2, 96 // 8]
        total = reencode(auto, [g, h], residuals, 0, 2)
        assert total.shape == [1, 96 // 8]
        fixed = two_bit_encode([g, h], residuals, 0.5, shards=2)
        assert fixed.shape == [2, 80 // 8]
        sizes = [count(fixed, n, "two_bit", 0.5).shape[1] for n in (2, 8, 128)]
        assert sizes == [(16 + 2 * size) // 8 for size in (64, 128, 256)]
        sums = decode_shards([total] * 2, [g, h], shards=2, replicas=2)
        assert [s.shape for s in sums] == [g.shape, h.shape]

    trace.get_concrete_function(tf.TensorSpec((129,)), tf.TensorSpec((2, 5)))


@pytest.mark.parametrize("known", [False, True])
def test_a_gradient_of_open_size_takes_that_of_its_residual(known: bool) -> None:
    residual = tf.Variable(tf.zeros((300,)), shape=(300,) if known else (None,))
    words = 12 if known else None

    @tf.function
    def trace(g: tf.Tensor) -> tf.Tensor:
        rows = two_bit_encode([g], [residual], shards=2, skip=0)
        assert rows.shape.as_list() == [2, words]
        total = reencode([rows[1:], rows[1:]], [g], [residual], 0, 2)
        assert total.shape.as_list() == [1, words]
        return decode_shards([total] * 2, [g], shards=2, replicas=2)[0]

    concrete = trace.get_concrete_function(tf.TensorSpec((None,), tf.float32))
    assert concrete(tf.ones(300)).shape == (300,)


def test_shape_functions_refuse_messages_of_the_wrong_length() -> None:
    residual = tf.Variable(tf.zeros((4,)))

    @tf.function
    def total_of(message: tf.Tensor) -> tf.Tensor:
        return reencode(message, [tf.zeros(4)], [residual], 0, 1)

    @tf.function
    def counts_of(message: tf.Tensor) -> tf.Tensor:
        return count(message, 1, "two_bit", 0.5)

    for function in (total_of, counts_of):
        with pytest.raises(ValueError, match=r"Dimensions must be equal|words"):
            function.get_concrete_function(tf.TensorSpec((1, 9), tf.int64))
        function.get_concrete_function(tf.TensorSpec((1, None), tf.int64))
