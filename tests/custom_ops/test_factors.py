"""Low rank: the ops against the NumPy oracle, with every instruction set, and what they refuse."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.custom_ops.cases import Array, Targets
from tests.oracles import factors as oracle
from tf_gc import ops
from tf_gc.reducers.factors import matrix_of

# Below, at and above the lanes of a vector, what is no matrix by itself, and one so wide that
# several rows are encoded together.
SHAPES = [(40, 33), (16, 64), (3, 5), (3, 3, 20, 31), (1, 7), (50, 1), (9,), (130, 200), (10, 4100)]


class Bucket:
    """The state of one replica in the oracle."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], rank: int) -> None:
        self.matrices = [matrix_of(shape) for shape in shapes]
        self.rows = [rows for rows, _ in self.matrices]
        self._rank = rank
        self.kept = [np.zeros(rank * columns, np.float32) for _, columns in self.matrices]

    def _columns(self, vector: Array, axis: int) -> list[Array]:
        sizes = [self._rank * matrix[axis] for matrix in self.matrices]
        return [part.reshape(self._rank, -1) for part in np.split(vector, np.cumsum(sizes)[:-1])]

    def project(self, gradients: Sequence[Array], residuals: Sequence[Array]) -> Array:
        parts = []
        for i, matrix in enumerate(self.matrices):
            q = self.kept[i].reshape(self._rank, -1)
            q = q if q.any() else oracle.orthonormal(q)
            p = oracle.project(gradients[i].reshape(matrix), residuals[i].reshape(matrix), q)
            parts.append(p.reshape(-1))
        return np.concatenate(parts)

    def encode(
        self, gradients: Sequence[Array], residuals: Sequence[Array], total: Array
    ) -> tuple[Array, Array, list[Array]]:
        bases = [oracle.orthonormal(p) for p in self._columns(total, 0)]
        sent, after = [], []
        for i, matrix in enumerate(self.matrices):
            gradient, residual = gradients[i].reshape(matrix), residuals[i].reshape(matrix)
            q, rest = oracle.encode(gradient, residual, bases[i])
            sent.append(q.reshape(-1))
            after.append(rest.reshape(residuals[i].shape))
        return np.concatenate(sent), np.concatenate([p.reshape(-1) for p in bases]), after

    def decode(self, total: Array, basis: Array, dtype: Any) -> list[Array]:
        sums = []
        columns = zip(self._columns(basis, 0), self._columns(total, 1), strict=True)
        for i, (p, q) in enumerate(columns):
            with np.errstate(over="ignore", invalid="ignore"):
                sums.append(oracle.product(p, q).astype(dtype))
            if np.isfinite(q).all():
                self.kept[i] = oracle.orthonormal(q).reshape(-1)
        return sums


def random_matrices(
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


def assert_same_but_for_nans(found: Sequence[Any], expected: Sequence[Array]) -> None:
    for mine, wanted in zip(found, expected, strict=True):
        value = np.asarray(mine).reshape(wanted.shape)
        assert value.dtype == wanted.dtype
        # The bits of a number that is none differ between processors in NumPy.
        bad = np.isnan(wanted.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(value.astype(np.float32)), bad)
        assert value[~bad].tobytes() == wanted[~bad].tobytes()


def check(
    targets: Targets,
    shapes: Sequence[tuple[int, ...]],
    rank: int,
    dtype: Any,
    seed: int,
    bad: float,
) -> None:
    rng = np.random.default_rng(seed)
    bucket = Bucket(shapes, rank)
    arguments = (bucket.rows, rank)
    expected = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    residuals = [[tf.Variable(each) for each in expected] for _ in targets()]
    factors: list[Any] = [bucket.kept.copy() for _ in residuals]
    for step in range(4):
        gradients = random_matrices(rng, shapes, dtype, bad if step in (1, 2) else 0.0)
        mine = [tf.constant(gradient) for gradient in gradients]
        wanted = bucket.project(gradients, expected)
        sent, of_p, expected = bucket.encode(gradients, expected, wanted)
        of_sums = bucket.decode(sent, of_p, dtype)
        for i, _ in enumerate(targets()):
            projected = ops.project_factors(mine, residuals[i], factors[i], *arguments)
            assert_same_but_for_nans([projected], [wanted])
            message, basis = ops.encode_factors(mine, residuals[i], projected, *arguments)
            assert_same_but_for_nans([message, basis], [sent, of_p])
            assert_same_but_for_nans(residuals[i], expected)
            sums, factors[i] = ops.decode_factors(message, basis, factors[i], mine, *arguments)
            assert_same_but_for_nans(sums, of_sums)
            assert_same_but_for_nans(factors[i], bucket.kept)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_each_target_gives_the_bits_of_the_oracle(
    rank: int, dtype: Any, on_each_target: Targets
) -> None:
    for bad in (0.0, 0.002):
        check(on_each_target, SHAPES, rank, dtype, rank, bad)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 90),
    columns=st.integers(1, 90),
    rank=st.integers(1, 9),
    bad=st.sampled_from([0.0, 0.01]),
)
def test_any_matrix_gives_the_bits_of_the_oracle(
    on_each_target: Targets, seed: int, rows: int, columns: int, rank: int, bad: float
) -> None:
    shapes = [(rows, columns), (columns, rows, 2)]
    check(on_each_target, shapes, rank, np.float32, seed, bad)


ARGUMENTS = {"rows": [4], "rank": 2}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rows": [3]}, "a tensor of the shape [4,10] is no matrix of 3 rows"),
        ({"rows": [0]}, "is no matrix of 0 rows"),
        ({"rows": [5]}, "must have the shape ["),
        ({"rows": [4, 4]}, "rows must have one for each of 1 matrices, got 2"),
        ({"rank": 3}, "must have the shape ["),
        ({"rank": 65}, "rank must be in [1, 64], got 65"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_residual_changes(
    changed: dict[str, Any], said: str
) -> None:
    gradient, residual = tf.ones([4, 10]), tf.Variable(tf.fill([4, 10], 2.0))
    factors, p, q = [tf.zeros([20])], tf.zeros([8]), tf.zeros([20])
    arguments = ARGUMENTS | changed
    for call in (
        lambda: ops.project_factors([gradient], [residual], factors, **arguments),
        lambda: ops.encode_factors([gradient], [residual], p, **arguments),
        lambda: ops.decode_factors(q, p, factors, [gradient], **arguments),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            call()
        assert said in str(caught.value)
    np.testing.assert_array_equal(residual, np.full((4, 10), 2.0))


def test_residuals_that_fit_no_gradient_are_refused() -> None:
    gradients, factors = [tf.ones([4, 10])], [tf.zeros([20])]
    with pytest.raises(ValueError, match="1 gradients need 1 residuals, got 0"):
        ops.project_factors(gradients, [], factors, **ARGUMENTS)
    with pytest.raises(ValueError, match="`gradients` is empty"):
        ops.encode_factors([], [], tf.zeros([0]), **ARGUMENTS)
    for call in (
        lambda residual: ops.project_factors(gradients, [residual], factors, **ARGUMENTS),
        lambda residual: ops.encode_factors(gradients, [residual], tf.zeros([8]), **ARGUMENTS),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="of its gradient's shape"):
            call(tf.Variable(tf.ones([5])))


def test_a_sum_that_overflows_harms_no_column() -> None:
    gradient, residual = tf.ones([4, 10]), tf.Variable(tf.zeros([4, 10]))
    total = tf.constant([1.0, 1.0, np.inf, 1.0, 0.0, 1.0, np.nan, 2.0])
    message, basis = ops.encode_factors([gradient], [residual], total, **ARGUMENTS)
    assert np.isfinite(message).all()
    np.testing.assert_array_equal(tf.reshape(basis, [2, 4])[:, 2], [0, 0])
