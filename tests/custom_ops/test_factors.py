"""Low rank: the ops against the NumPy oracle, with every instruction set, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.custom_ops import native
from tests.oracles import factors as oracle
from tf_gc import ops
from tf_gc.reduction.factors import Layout, matrix_of

Array = native.Array
Targets = Callable[[], Iterator[native.Library]]

# Below, at and above the lanes of a vector, and what is no matrix by itself.
SHAPES = [(40, 33), (16, 64), (3, 5), (3, 3, 20, 31), (1, 7), (50, 1), (9,), (130, 200)]


def vectors_of(shapes: Sequence[tuple[int, ...]], rank: int) -> list[Array]:
    return [np.zeros(1 + rank * sum(matrix_of(shape)), np.float32) for shape in shapes]


class Bucket:
    """What the oracle keeps of one replica."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], rank: int) -> None:
        self.layout, self.rank, self.turn = Layout(shapes, rank), rank, 0
        self.matrices = [matrix_of(shape) for shape in shapes]
        self.kept = [[np.zeros((rank, n), np.float32) for n in pair] for pair in self.matrices]

    def _sends_p(self) -> list[bool]:
        return [p_first == (self.turn == 0) for p_first in self.layout.p_first]

    def _basis(self, i: int, sends_p: bool) -> Array:
        basis = self.kept[i][1 if sends_p else 0]
        return basis if basis.any() else oracle.orthonormal(basis)

    def encode(self, gradients: Sequence[Array], residuals: Sequence[Array]) -> Any:
        parts, after = [], []
        for i, sends_p in enumerate(self._sends_p()):
            gradient, residual = (
                each[i].reshape(self.matrices[i]) for each in (gradients, residuals)
            )
            sent, rest = oracle.encode(gradient, residual, self._basis(i, sends_p), sends_p)
            parts.append(sent.reshape(-1))
            after.append(rest.reshape(residuals[i].shape))
        message = np.concatenate(parts)
        return np.pad(message, (0, self.layout.size - len(message))), after

    def decode(self, total: Array, dtype: Any) -> list[Array]:
        sums, start = [], 0
        for i, sends_p in enumerate(self._sends_p()):
            count = self.rank * self.matrices[i][0 if sends_p else 1]
            sent = total[start : start + count].reshape(self.rank, -1)
            start += count
            basis = self._basis(i, sends_p)
            with np.errstate(over="ignore", invalid="ignore"):
                sums.append(oracle.product(sent, basis, sends_p).astype(dtype))
            self.kept[i][1 if sends_p else 0] = basis
            if np.isfinite(sent).all():
                self.kept[i][0 if sends_p else 1] = oracle.orthonormal(sent)
        self.turn = 1 - self.turn
        return sums

    def vectors(self) -> list[Array]:
        turn = [np.float32(self.turn)]
        return [np.concatenate([turn, p.reshape(-1), q.reshape(-1)]) for p, q in self.kept]


def gradients_of(
    rng: np.random.Generator, shapes: Sequence[tuple[int, ...]], dtype: Any, bad: float = 0.0
) -> list[Array]:
    gradients = []
    for shape in shapes:
        values = rng.normal(size=shape) * 10 ** rng.uniform(-6, 2, size=shape)
        values = values.astype(np.float32)
        chosen = rng.random(shape) < bad
        values[chosen] = rng.choice([np.nan, np.inf, -np.inf, 3e38, -1e-40], chosen.sum())
        with np.errstate(over="ignore"):
            gradients.append(values.astype(dtype))
    return gradients


def assert_same_bits(found: Sequence[Any], expected: Sequence[Array]) -> None:
    for mine, wanted in zip(found, expected, strict=True):
        value = np.asarray(mine).reshape(wanted.shape)
        assert value.dtype == wanted.dtype
        # The bits of a number that is none differ between processors in NumPy.
        bad = np.isnan(wanted.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(value.astype(np.float32)), bad)
        assert value[~bad].tobytes() == wanted[~bad].tobytes()


def check(shapes: Sequence[tuple[int, ...]], rank: int, dtype: Any, seed: int, bad: float) -> None:
    rng = np.random.default_rng(seed)
    bucket = Bucket(shapes, rank)
    arguments = (bucket.layout.rows, bucket.layout.p_first, rank)
    expected = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    residuals = [tf.Variable(each) for each in expected]
    factors: Any = vectors_of(shapes, rank)
    for step in range(4):
        gradients = gradients_of(rng, shapes, dtype, bad if step in (1, 2) else 0.0)
        mine = [tf.constant(gradient) for gradient in gradients]
        message = ops.encode_factors(mine, residuals, factors, *arguments, bucket.layout.size)
        wanted, expected = bucket.encode(gradients, expected)
        assert_same_bits([message], [wanted])
        assert_same_bits(residuals, expected)
        sums, factors = ops.decode_factors(message, factors, mine, *arguments)
        assert_same_bits(sums, bucket.decode(wanted, dtype))
        assert_same_bits(factors, bucket.vectors())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_each_target_gives_the_bits_of_the_oracle(
    rank: int, dtype: Any, on_each_target: Targets
) -> None:
    for _ in on_each_target():
        check(SHAPES, rank, dtype, seed=rank, bad=0.0)
        check(SHAPES, rank, dtype, seed=rank, bad=0.002)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 90),
    columns=st.integers(1, 90),
    rank=st.integers(1, 9),
    bad=st.sampled_from([0.0, 0.01]),
)
def test_any_matrix_gives_the_bits_of_the_oracle(
    seed: int, rows: int, columns: int, rank: int, bad: float
) -> None:
    check([(rows, columns), (columns, rows, 2)], rank, np.float32, seed, bad)


ENCODE = {"rows": [4], "p_first": [True], "rank": 2, "size": 20}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rows": [3]}, "a tensor of the shape [4,10] is no matrix of 3 rows"),
        ({"rows": [0]}, "is no matrix of 0 rows"),
        ({"rows": [5]}, "must have the shape [27], got [29]"),
        ({"rows": [4, 4]}, "must have one for each of 1 matrices, got 2 and 1"),
        ({"p_first": []}, "Length for attr 'p_first' of 0"),
        ({"rank": 3}, "must have the shape [43], got [29]"),
        ({"rank": 65}, "rank must be in [1, 64], got 65"),
        ({"size": 19}, "a message of 19 elements is shorter than 20"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_residual_changes(
    changed: dict[str, Any], said: str
) -> None:
    gradient, residual = tf.ones([4, 10]), tf.Variable(tf.fill([4, 10], 2.0))
    factors = [tf.zeros([29])]
    arguments = ENCODE | changed
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as caught:
        ops.encode_factors([gradient], [residual], factors, **arguments)
    assert said in str(caught.value)
    np.testing.assert_array_equal(residual, np.full((4, 10), 2.0))
    size = arguments.pop("size")
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as caught:
        ops.decode_factors(tf.zeros([size]), factors, [gradient], **arguments)
    assert said in str(caught.value)


def test_residuals_that_fit_no_gradient_are_refused() -> None:
    factors = [tf.zeros([29])]
    with pytest.raises(ValueError, match="1 gradients need as many residuals, got 0"):
        ops.encode_factors([tf.ones([4, 10])], [], factors, **ENCODE)
    with pytest.raises(ValueError, match="`gradients` is empty"):
        ops.encode_factors([], [], [], **ENCODE)
    with pytest.raises(tf.errors.InvalidArgumentError, match="of its gradient's shape"):
        ops.encode_factors([tf.ones([4, 10])], [tf.Variable(tf.ones([5]))], factors, **ENCODE)
    with pytest.raises(tf.errors.InvalidArgumentError, match="total must be a vector"):
        ops.decode_factors(tf.zeros([2, 10]), factors, [tf.ones([4, 10])], [4], [True], 2)
