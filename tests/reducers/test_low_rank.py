"""Low rank under a strategy: what is sent, what is kept, and what all replicas agree on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.strategies.helpers import (
    check_that_nothing_is_lost,
    normal,
    reducer,
    strategy_of,
    summing,
    variables_of,
)
from tf_gc.network.group import Replica
from tf_gc.params import Gradient
from tf_gc.reducers.factors import FACTORS, Factors, Matrices, matrix_of

COLD = tf_gc.LowRank(2, warm_up=False)
SHAPES = [(128, 192), (3, 3, 32, 160), (400, 140), (7,)]


@cases("replicas, eager", (3, False), (2, True))
def test_what_is_sent_and_what_is_kept_is_what_was_given(replicas: int, eager: bool) -> None:
    strategy = strategy_of(COLD, replicas)
    variables = variables_of(strategy, *SHAPES)
    run = reducer(strategy, variables, eager)
    steps = (normal(SHAPES, step, replicas) for step in range(5))
    check_that_nothing_is_lost(strategy, variables, run, steps, rtol=1e-5, atol=1e-4)
    kept = [strategy.compression_state.total(variable) is not None for variable in variables]
    assert kept == [True, True, True, False]  # the vector is small


def test_the_factors_follow_what_is_largest_in_the_gradients() -> None:
    strategy, run = summing(COLD, (128, 192))
    random = np.random.default_rng(0)
    large = random.normal(size=(128, 2)) @ random.normal(size=(2, 192))
    gradients = [(large + 0.01 * random.normal(size=(2, 128, 192))).astype("f")]
    exact = gradients[0].sum(0)
    errors = [np.linalg.norm(run(gradients)[0][0] - exact) for _ in range(8)]
    assert max(errors) < 0.1 * np.linalg.norm(exact)
    # They are kept: the columns of Q span the rows of the large part.
    (kept,) = (e.value for e in strategy.compression_state.entries() if e.slot == FACTORS)
    for component in kept.values:
        q = component.numpy().reshape(2, 192)
        assert np.linalg.norm(large - large @ q.T @ q) < 0.01 * np.linalg.norm(large)


def test_what_is_not_finite_is_seen_and_does_no_lasting_harm() -> None:
    strategy = strategy_of(COLD)
    (variable,) = variables_of(strategy, (128, 192))
    run = reducer(strategy, [variable])
    run(normal([(128, 192)], 0))
    for step, value in enumerate([np.nan, np.inf, 3e38, 3e38]):
        gradients = normal([(128, 192)], 1 + step)
        gradients[0][1, 5, 7] = value
        for (total,) in run(gradients):
            bad = ~np.isfinite(total)
            assert bad[:, 7].all() or np.isfinite(value)
            assert not np.delete(bad, 7, axis=1).any()  # no other column
    for residual in strategy.compression_state.residuals_of(variable):
        assert np.isfinite(residual).all()
    for step in range(4):
        for (total,) in run(normal([(128, 192)], 9 + step)):
            assert np.isfinite(total).all()


def test_the_schedule_says_which_tensors_go_how() -> None:
    params = tf_gc.LowRank(2, exclude="^kept")
    strategy = strategy_of(params)
    shapes = {"matrix": (128, 192), "thin": (80, 192), "vector": (5000,), "kept": (128, 192)}
    variables = variables_of(strategy, **shapes)
    gradients = normal(shapes.values(), 0)
    first, _ = reducer(strategy, variables)(gradients)
    for total, gradient in zip(first, gradients, strict=True):  # a warm-up is exact
        np.testing.assert_array_equal(total, gradient[0] + gradient[1])
    said = str(strategy.schedule)
    assert "24,576 elements of float32 by factors of rank 2, all_reduce, float32: matrix" in said
    assert "by 3 bits, all_gather" in said
    assert said.index("3 bits") < said.index("thin")
    assert "excluded by the pattern '^kept' (kept)" in said
    assert "the first steps are in full precision: 1 so far" in said


def test_traffic_of_all_matrices_is_an_all_reduce() -> None:
    shapes = [(1200, 1000), (1000, 1200), (128, 192)]  # the first two have 4.8 MB each
    for replicas in (2, 4):
        strategy, run = summing(COLD, *shapes, replicas=replicas)
        run(normal(shapes, 0, replicas))
        size = 2 * (2200 + 2200 + 320) * 4  # rank 2
        assert strategy.traffic.sent_bytes == 2 * (replicas - 1) * size // replicas
        assert (strategy.traffic.plan, strategy.traffic.buckets) == ("all_reduce", 1)
        assert strategy.report().density == 1


@cases("replicas", 2, 4)
def test_a_checkpoint_goes_on_where_it_was(tmp_path: Path, replicas: int) -> None:
    def program() -> tuple[Any, Any]:
        strategy, run = summing(COLD, *SHAPES, replicas=replicas)
        return tf.train.Checkpoint(state=strategy.compression_state), run

    checkpoint, run = program()
    for step in range(3):
        run(normal(SHAPES, step, replicas))
    path = checkpoint.save(str(tmp_path / "saved"))
    going_on = [run(normal(SHAPES, step, replicas)) for step in (3, 4)]
    checkpoint, run = program()
    checkpoint.read(path)
    for step, wanted in zip((3, 4), going_on, strict=True):
        # Each replica has an equal part of the residuals now, and the factors are the same.
        for mine, theirs in zip(run(normal(SHAPES, step, replicas))[0], wanted[0], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=2e-4)


def test_another_rank_begins_anew_with_the_same_residuals(tmp_path: Path) -> None:
    shape = (128, 384)
    strategy = strategy_of(COLD)
    (variable,) = variables_of(strategy, shape)
    run = reducer(strategy, [variable])
    run(normal([shape], 0))
    left = strategy.compression_state.total(variable)
    path = tf.train.Checkpoint(state=strategy.compression_state).save(str(tmp_path / "saved"))

    for params in (tf_gc.LowRank(1, warm_up=False), tf_gc.Quantized(warm_up=False)):
        strategy = strategy_of(params)
        (variable,) = variables_of(strategy, shape)
        run = reducer(strategy, [variable])
        tf.train.Checkpoint(state=strategy.compression_state).read(path)
        ((total,), _) = run([np.zeros((2, *shape), "f")])
        kept = strategy.compression_state.total(variable)
        np.testing.assert_allclose(total + kept, left, rtol=1e-4, atol=1e-4)


@cases("dtype", np.float32, np.float16)
def test_what_gpus_run_does_the_same(dtype: Any) -> None:
    # TensorFlow's ops, which run on every device.
    shapes = SHAPES[:3]
    random = np.random.default_rng(1)
    kept = {device: [tf.Variable(tf.zeros(s)) for s in shapes] for device in ("CPU:0", "GPU:0")}
    factors = {d: [tf.Variable(tf.zeros([3 * matrix_of(s)[1]])) for s in shapes] for d in kept}
    for step in range(5):
        gradients = [tf.constant(random.normal(size=s).astype(dtype)) for s in shapes]
        if step == 2:
            bad = gradients[0].numpy()
            bad[3, 4] = np.nan
            gradients[0] = tf.constant(bad)
        found = {}
        for device, residuals in kept.items():
            shared = factors[device]
            matrices = Matrices(Replica(device, gradients, residuals, shared=shared), 3)
            projected = matrices.project()
            message, basis = matrices.encode(projected)
            sums, after = matrices.decode(message, basis)
            for variable, value in zip(shared, after, strict=True):
                variable.assign(value)
            found[device] = [projected, message, basis, *sums, *after, *residuals]
        for mine, theirs in zip(*found.values(), strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("device", ["CPU:0", "GPU:0"])
def test_columns_that_nearly_depend_on_each_other_become_orthonormal(device: str) -> None:
    random = np.random.default_rng(1)
    columns = random.normal(size=200) + 3e-6 * random.normal(size=(6, 200))
    zeros = tf.zeros([200, 250])
    matrices = Matrices(Replica(device, [zeros], [tf.Variable(zeros)]), 6)
    _, basis = matrices.encode(tf.constant(columns.reshape(-1), tf.float32))
    basis = tf.reshape(basis, [6, 200]).numpy()
    np.testing.assert_allclose(basis @ basis.T, np.eye(6), atol=1e-6)
    rest = columns - columns @ basis.T @ basis
    assert np.abs(rest).max() < 1e-5


def test_matrices_are_as_square_as_their_axes_allow() -> None:
    assert matrix_of((64, 96)) == (64, 96)
    assert matrix_of((3, 3, 64, 128)) == (576, 128)
    assert matrix_of((256, 8, 32)) == (256, 256)  # of attention: queries, keys and values
    assert matrix_of((8, 32, 256)) == (256, 256)  # and what joins the heads
    assert matrix_of((9,)) == (9, 1)
    assert matrix_of(()) == (1, 1)


def test_only_what_gets_small_enough_is_low_rank() -> None:
    shapes = ((256, 256), (255, 256), (140, 2000), (200_000,))
    specs = [tf_gc.LowRank().spec_of(Gradient("a", tf.float32, shape)) for shape in shapes]
    assert [isinstance(spec, Factors) for spec in specs] == [True, False, True, False]
