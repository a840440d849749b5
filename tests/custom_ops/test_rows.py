"""Rows: the ops against the NumPy oracle, with every instruction set, and broken messages."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.custom_ops.cases import Targets
from tests.oracles import rows as oracle
from tf_gc import ops

CODECS = [*oracle.BITS]
# The rows of a table and how long a row is: below, at and above the size of a block.
TABLES = [(50, 16), (7, 128), (300, 200), (1, 5), (40, 3, 43), (9,), (1000, 1)]


def random_slices(
    rng: np.random.Generator, shapes: Sequence[tuple[int, ...]], dtype: Any = np.float32
) -> list[oracle.Slices]:
    """Rows of each table, many of them more than once, with some values that are not finite."""
    result = []
    for shape in shapes:
        count = int(rng.integers(0, 40))
        indices = np.minimum(rng.integers(0, shape[0], count), rng.integers(0, shape[0], count))
        values = (rng.normal(size=(count, *shape[1:])) ** 3).astype(np.float32)
        bad = rng.random(values.shape) < 0.002
        values[bad] = rng.choice([np.nan, np.inf, 2.0**121, -1e-40], bad.sum())
        with np.errstate(over="ignore"):
            result.append((values.astype(dtype), indices))
    return result


def slices(gradients: Sequence[oracle.Slices]) -> list[tf.IndexedSlices]:
    return [tf.IndexedSlices(tf.constant(values), tf.constant(i)) for values, i in gradients]


def assert_same_rows(found: Sequence[tf.IndexedSlices], expected: Sequence[oracle.Slices]) -> None:
    for mine, (values, indices) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.indices, indices)
        assert mine.values.dtype == values.dtype
        assert mine.values.shape == values.shape
        assert mine.values.numpy().tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("codec", "layers"), [("exact", 1), *((codec, n) for codec in CODECS for n in (1, 2))]
)
def test_each_target_gives_the_bits_of_the_oracle(
    codec: str, layers: int, dtype: Any, on_each_target: Targets
) -> None:
    rng = np.random.default_rng(layers)
    keeps = layers == 1 and codec != "exact"
    expected = [rng.normal(size=shape).astype(np.float32) for shape in TABLES if keeps]
    residuals = [[tf.Variable(each) for each in expected] for _ in on_each_target()]
    encoded = []
    for seed in range(3):
        gradients = random_slices(np.random.default_rng(seed), TABLES, dtype)
        given = slices(gradients)
        mine, expected = oracle.encode(gradients, expected, TABLES, codec, layers)
        for kept, _ in zip(residuals, on_each_target(), strict=True):
            message = ops.encode_rows(given, kept, TABLES, codec, layers)
            assert message.numpy().tobytes() == mine
            for residual, rest in zip(kept, expected, strict=True):
                np.testing.assert_array_equal(residual, rest)
        encoded.append(mine)
    total = oracle.decode(encoded, TABLES, codec, layers, dtype)
    messages = [np.frombuffer(message, np.int64)[None] for message in encoded]
    for _ in on_each_target():
        assert_same_rows(ops.decode_rows(messages, TABLES, dtype, codec, layers), total)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    columns=st.integers(1, 400),
    codec=st.sampled_from(CODECS),
    layers=st.sampled_from([1, 2]),
)
def test_any_row_gives_the_bits_of_the_oracle(
    seed: int, columns: int, codec: str, layers: int
) -> None:
    rng = np.random.default_rng(seed)
    shapes = [(int(rng.integers(1, 2000)), columns)]
    gradients = random_slices(rng, shapes)
    before = [rng.normal(size=shapes[0]).astype(np.float32)] if layers == 1 else []
    residuals = [tf.Variable(each) for each in before]
    message = ops.encode_rows(slices(gradients), residuals, shapes, codec, layers)
    mine, after = oracle.encode(gradients, before, shapes, codec, layers)
    assert message.numpy().tobytes() == mine
    for residual, kept in zip(residuals, after, strict=True):
        np.testing.assert_array_equal(residual, kept)
    longer = tf.pad(message, [[0, 0], [0, int(rng.integers(0, 3))]])
    sums = ops.decode_rows([longer], shapes, tf.float32, codec, layers)
    assert_same_rows(sums, oracle.decode([mine], shapes, codec, layers))


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_sent_and_what_is_kept_make_up_all_gradients(codec: str) -> None:
    rng = np.random.default_rng(0)
    shape = (30, 150)
    residual = tf.Variable(tf.zeros(shape))
    sent, given = np.zeros(shape), np.zeros(shape)
    for _ in range(20):
        indices = rng.integers(0, shape[0], 12)
        values = rng.normal(size=(12, shape[1])).astype(np.float32)
        np.add.at(given, indices, values)
        message = ops.encode_rows(slices([(values, indices)]), [residual], [shape], codec)
        (rows,) = ops.decode_rows(message, [shape], tf.float32, codec)
        sent[rows.indices.numpy()] += rows.values.numpy()
    np.testing.assert_allclose(sent + residual.numpy(), given, atol=1e-4)


@pytest.mark.parametrize(("codec", "part"), [("three_bit", 1 / 16), ("four_bit", 1 / 64)])
def test_two_layers_are_off_by_a_part_of_the_largest_of_a_row(codec: str, part: float) -> None:
    rng = np.random.default_rng(0)
    for columns in (16, 64, 128):
        values = (rng.normal(size=(500, columns)) ** 3).astype(np.float32)
        message = ops.encode_rows(
            slices([(values, np.arange(500))]), [], [(500, columns)], codec, 2
        )
        (rows,) = ops.decode_rows(message, [(500, columns)], tf.float32, codec, 2)
        error = np.abs(rows.values.numpy() - values).max(axis=1)
        assert (error <= part * np.abs(values).max(axis=1)).all()


def test_an_exact_row_is_the_sum_of_its_occurrences() -> None:
    first = (np.array([[1, 2], [3, 4], [5, 6]], "f"), np.array([7, 2, 7]))
    second = (np.array([[10, 20]], "f"), np.array([2]))
    messages = [ops.encode_rows(slices([g]), [], [(9, 2)], "exact") for g in (first, second)]
    sums = ops.decode_rows(messages, [(9, 2)], tf.float32, "exact")
    assert_same_rows(sums, [(np.array([[13, 24], [6, 8]], "f"), np.array([2, 7]))])
    np.testing.assert_array_equal(sums[0].dense_shape, [9, 2])


@pytest.mark.parametrize("index", [-1, 9, 2**40])
def test_an_index_of_no_row_is_named_before_anything_changes(index: int) -> None:
    residuals = [tf.Variable(tf.ones((5, 4))), tf.Variable(tf.ones((9, 4)))]
    gradients = slices(
        [(np.ones((2, 4), "f"), np.array([1, 2])), (np.ones((2, 4), "f"), np.array([3, index]))]
    )
    shapes, names = [(5, 4), (9, 4)], ["users/embeddings", "items/embeddings"]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"items/embeddings has the index {index}.*\[0, 9\)"
    ):
        ops.encode_rows(gradients, residuals, shapes, names=names)
    for residual in residuals:
        np.testing.assert_array_equal(residual, tf.ones_like(residual))


def test_a_residual_that_is_being_read_keeps_its_value_for_the_reader() -> None:
    residual = tf.Variable(tf.ones((9, 4)))
    gradient = slices([(np.full((1, 4), 5, "f"), np.array([3]))])
    message = ops.encode_rows(gradient, [residual], [(9, 4)])  # nobody reads: in place
    read = residual.read_value()
    before = read.numpy().copy()
    ops.encode_rows(gradient, [residual], [(9, 4)])
    np.testing.assert_array_equal(read, before)
    np.testing.assert_array_equal(residual.numpy()[[0, 8]], np.ones((2, 4)))
    assert message.shape[0] == 1


def test_gradients_that_do_not_fit_their_tables_are_refused() -> None:
    rows = slices([(np.ones((2, 4), "f"), np.array([1, 2]))])
    kept = tf.Variable(tf.zeros((9, 4)))
    for says, *arguments in (
        (r"table 0 has values of the shape \[2,4\].*is \[9,5\]", [], [(9, 5)]),
        (r"residual 0 .* \[8,4\], got", [kept], [(8, 4)]),
        ("exact rows and two layers keep nothing", [kept], [(9, 4)], "three_bit", 2),
        ("and 1 if rows are exact, got 2", [], [(9, 4)], "exact", 2),
        (r"layers must be in \[1, 2\]", [], [(9, 4)], "three_bit", 3),
        ("none or one for each of 1 gradients, got 2", [kept, kept], [(9, 4)]),
        (r"one element or more, got the shape \[9,0\]", [], [(9, 0)]),
        ("codec", [], [(9, 4)], "five_bit"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=says):
            ops.encode_rows(rows, *arguments)


def test_a_message_of_something_else_is_refused() -> None:
    shapes = [(300, 5), (9, 4)]
    gradients = [(np.ones((2, 5), "f"), np.array([1, 290])), (np.ones((1, 4), "f"), np.array([8]))]
    message = ops.encode_rows(slices(gradients), [], shapes)
    for arguments in (
        {"shapes": shapes, "codec": "four_bit"},
        {"shapes": shapes, "layers": 2},
        {"shapes": shapes[:1]},
        {"shapes": [(290, 5), (9, 4)]},  # has no row 290
        {"shapes": [(300, 900), (9, 4)]},
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="no rows of these tables"):
            ops.decode_rows(message, **arguments)  # type: ignore[arg-type]
    for words in range(message.shape[1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="no rows of these tables"):
            ops.decode_rows(message[:, :words], shapes)
