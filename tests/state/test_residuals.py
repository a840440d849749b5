"""Residuals: whose they are, how long they live, how they are saved."""

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.state.checkpoints import values_in
from tests.strategies.helpers import normal, reducer, strategy_of, variables_of
from tf_gc.state import residuals, stored
from tf_gc.state.stream import named_stream

CODEC = tf_gc.TwoBit(0.5)


def leave(strategy: Any, variables: Sequence[tf.Variable], values: Sequence[float]) -> None:
    """Reduces gradients too small to be sent, so that all of them stay in the residuals."""
    replicas = strategy.num_replicas_in_sync
    pairs = zip(variables, values, strict=True)
    reducer(strategy, variables)([np.full((replicas, *v.shape), value, "f") for v, value in pairs])


def test_each_replica_has_its_own_on_its_device() -> None:
    strategy = strategy_of(CODEC, 3)
    (variable,) = variables_of(strategy, v=3)
    residuals = strategy.compression_state.residuals_of(variable)
    assert [r.device for r in residuals] == [v.device for v in variable.values]
    gradients = np.array([[0.1] * 3, [0.2] * 3, [0.3] * 3], np.float32)
    reducer(strategy, [variable])([gradients])
    np.testing.assert_array_equal([r.numpy() for r in residuals], gradients)


def test_a_residual_belongs_to_its_variable_whatever_is_reduced_beside_it() -> None:
    strategy, other = strategy_of(CODEC), strategy_of(CODEC)
    a, b = variables_of(strategy, a=3, b=3)
    (second,) = variables_of(strategy, b=3)
    leave(strategy, [a, b], [0.01, 0.02])
    leave(strategy, [second, b], [0.04, 0.02])
    leave(strategy, [b, a, second], [0.02, 0.01, 0.04])
    leave(other, variables_of(other, a=3), [0.1])
    for variable, expected in ((a, 0.02), (b, 0.06), (second, 0.08)):
        for residual in strategy.compression_state.residuals_of(variable):
            np.testing.assert_allclose(residual, expected, rtol=1e-6)
    assert sorted(strategy.compression_state.residual_owners()) == ["a", "b", "b (2)"]


def test_making_them_does_not_trace_a_step_twice() -> None:
    strategy = strategy_of(tf_gc.TwoBit(bypass_size=0))
    variables = variables_of(strategy, v=3, w=3)
    traces = 0

    def step() -> None:
        nonlocal traces
        traces += 1
        strategy.run(lambda: tf_gc.all_reduce_gradients([(tf.ones(3), v) for v in variables]))

    traced = tf.function(step)
    traced()
    traced()
    assert traces == 1
    assert len(strategy.compression_state) == 2


def test_reset_drops_what_waits_for_its_variable(tmp_path: Path) -> None:
    path = saved(tmp_path, v=3)
    strategy = strategy_of(CODEC)
    (variable,) = variables_of(strategy, v=3)
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    checkpoint.restore(path)
    strategy.compression_state.reset()
    leave(strategy, [variable], [0.0])
    np.testing.assert_array_equal(strategy.compression_state.total(variable), np.zeros(3))
    checkpoint.restore(path)
    np.testing.assert_allclose(strategy.compression_state.total(variable), [0.2] * 3, rtol=1e-6)


def test_a_residual_goes_with_its_variable(tmp_path: Path) -> None:
    strategy = strategy_of(CODEC)
    variables = variables_of(strategy, a=3, b=3)
    leave(strategy, variables, [0.1, 0.2])
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    checkpoint.save(tmp_path / "ckpt")
    ended = weakref.ref(strategy.compression_state.residuals_of(variables[0])[0])
    del variables[0]
    gc.collect()
    assert ended() is None
    assert len(strategy.compression_state) == 1
    kept = values_in(checkpoint.save(tmp_path / "ckpt"))
    assert list(kept) == ["residual b"]
    np.testing.assert_allclose(kept["residual b"], [0.4] * 3)


def saved(tmp_path: Path, **sizes: int) -> str:
    """Returns a checkpoint with a sum of residuals of 0.2 for each of these variables."""
    strategy = strategy_of(CODEC)
    trained = variables_of(strategy, **sizes)
    leave(strategy, trained, [0.1] * len(sizes))
    return tf.train.Checkpoint(compression=strategy.compression_state).save(tmp_path / "ckpt")


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    """Returns what the log says of residuals, each line with its level, and forgets it."""
    caplog.set_level(logging.INFO, logger="absl")

    def read() -> list[tuple[str, str]]:
        lines = [(r.levelname, r.getMessage()) for r in caplog.records]
        caplog.clear()
        return [line for line in lines if line[1].startswith("tf_gc: residuals")]

    return read


MISSED = (
    "residuals of 1 variables restored; residuals of a not used so far; residuals of c start at "
    "zero; Keras numbers models and layers without a name: give them names"
)


@pytest.mark.parametrize(
    ("names", "level", "line"),
    [("ab", "INFO", "residuals of 2 variables restored"), ("bc", "WARNING", MISSED)],
)
def test_one_line_says_what_was_restored(
    tmp_path: Path, said: Any, names: str, level: str, line: str
) -> None:
    path = saved(tmp_path, a=3, b=3)
    assert said() == [("INFO", "tf_gc: residuals of all 2 variables start at zero")]
    strategy = strategy_of(CODEC)
    variables = variables_of(strategy, **dict.fromkeys(names, 3))
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    checkpoint.restore(path)
    assert not said()
    leave(strategy, variables, [0.0, 0.0])
    assert said() == [(level, f"tf_gc: {line}")]
    leave(strategy, variables, [0.0, 0.0])
    assert not said()
    checkpoint.restore(path)
    assert said() == [(level, f"tf_gc: {line}")]


@cases("step_first", True, False)
def test_a_residual_of_another_shape_is_left_out(
    tmp_path: Path, said: Any, step_first: bool
) -> None:
    """A head of 10 classes becomes one of 20."""
    path = saved(tmp_path, trunk=3, head=10)
    strategy = strategy_of(CODEC)
    variables = variables_of(strategy, trunk=3, head=20)
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    if step_first:
        leave(strategy, variables, [0.0, 0.0])
    said()
    checkpoint.restore(path)
    leave(strategy, variables, [0.0, 0.0])
    trunk, head = map(strategy.compression_state.total, variables)
    np.testing.assert_allclose(trunk, [0.2] * 3, rtol=1e-6)
    np.testing.assert_array_equal(head, np.zeros(20))
    restored = "residuals of 1 variables restored; residuals of head start at zero, because their"
    assert [line for _, line in said()] == [f"tf_gc: {restored} shape has changed"]


def test_without_compression_one_line_says_that_residuals_are_dropped(
    tmp_path: Path, said: Any
) -> None:
    path = saved(tmp_path, a=3, b=3)
    said()
    strategy = strategy_of(tf_gc.NoCompression())
    tf.train.Checkpoint(compression=strategy.compression_state).restore(path)
    words = "tf_gc: residuals of 2 variables dropped, nothing is compressed now"
    assert said() == [("WARNING", words)]


def test_restoring_undoes_what_was_left_since(tmp_path: Path) -> None:
    strategy = strategy_of(tf_gc.Auto(tf_gc.Quantized(bypass_size=0)))
    (variable,) = variables_of(strategy, a=3)
    state = strategy.compression_state
    checkpoint = tf.train.Checkpoint(compression=state)
    path = checkpoint.save(tmp_path / "ckpt")
    leave(strategy, [variable], [1.0])
    entries = state.entries(variable)
    assert sorted(entry.slot for entry in entries) == ["residual", "trial", "warm_up"]
    components = [component for entry in entries for component in entry.value.values]
    for component in components:
        component.assign(tf.ones_like(component))
    checkpoint.restore(path)
    assert not np.any([np.any(component) for component in components])


@cases("eager", False, True)
def test_a_single_replica_adds_what_was_restored_to_its_first_gradient(
    tmp_path: Path, said: Any, eager: bool
) -> None:
    path = saved(tmp_path, a=3, b=3)
    said()
    strategy = strategy_of(CODEC, 1)
    a, new = variables_of(strategy, a=3, new=3)
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    checkpoint.restore(path)
    reduce = reducer(strategy, [a, new], eager)
    gradients = [np.array([[1, np.nan, 2]], np.float32), np.ones((1, 3), np.float32)]
    np.testing.assert_allclose(reduce(gradients)[0], [[1.2, np.nan, 2.2], [1, 1, 1]], rtol=1e-6)
    gradients[0][:] = 1
    np.testing.assert_allclose(reduce(gradients)[0], [[1, 1.2, 1], [1, 1, 1]], rtol=1e-6)
    np.testing.assert_allclose(reduce(gradients)[0], np.ones((2, 3)))
    (line,) = said()
    assert "residuals of 1 variables restored; residuals of b not used so far" in line[1]
    assert len(strategy.compression_state) == 1  # no memory for variables without any
    checkpoint.restore(path)
    assert eager != any("restore before the first step" in text for _, text in said())


@cases(
    "before, after",
    *(("float32", "bfloat16"), ("bfloat16", "int8"), ("int8", "float32"), ("float32", "int8")),
)
def test_a_sum_restores_in_any_dtype_for_any_number_of_replicas(
    tmp_path: Path, before: str, after: str
) -> None:
    (gradient,) = normal([(40, 60)], 1, 4)
    sums = []
    for dtype, replicas in ((before, 2), (after, 4)):
        params = tf_gc.Quantized(warm_up=False, bypass_size=0, residual=dtype)
        strategy = strategy_of(params, replicas)
        (variable,) = variables_of(strategy, (40, 60))
        state = strategy.compression_state
        checkpoint = tf.train.Checkpoint(compression=state)
        if not sums:
            reducer(strategy, [variable])([gradient[:replicas]])
            path = checkpoint.save(tmp_path / "ckpt")
            (saved,) = (kept for name, kept in values_in(path).items() if "residual" in name)
            np.testing.assert_array_equal(saved, state.total(variable))
        checkpoint.restore(path)
        kept = state.residuals_of(variable, named_stream(""), tf.as_dtype(dtype))
        assert {each.dtype.name for each in kept} == {dtype}
        sums.append(state.total(variable))
        assert sums[-1].dtype == np.float32
    assert np.abs(sums[0]).max() > 0.1
    atol = np.abs(sums[0]).max() / 253 if "int8" in (before, after) else 0
    np.testing.assert_allclose(sums[1], sums[0], rtol=2**-8, atol=atol)
    # Low rank, say, needs float32, after a rule has changed its mind. A function that was traced
    # before goes on with the narrower ones.
    narrow = state.residuals_of(variable, named_stream(""))
    wide = state.residuals_of(variable, named_stream(""), tf.float32)
    assert {each.dtype.name for each in wide} == {"float32"}
    np.testing.assert_allclose(state.total(variable), sums[1], rtol=1e-6)
    others = sums[1] - stored.widened(narrow[0], (40, 60))
    narrow[0].assign(stored.narrowed(tf.ones((40, 60)), narrow[0].dtype))
    np.testing.assert_allclose(state.total(variable), others + 1, rtol=1e-5)
    state.reset()
    np.testing.assert_array_equal(state.total(variable), np.zeros((40, 60)))


@pytest.mark.parametrize("kept_in", [tf.float32, tf.bfloat16, tf.int8], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_they_are_added_to_a_gradient_and_stay_where_that_is_not_finite(
    dtype: Any, kept_in: Any
) -> None:
    values = np.random.default_rng(1).normal(size=(5, 3)).astype("f")
    kept = tf.Variable(stored.narrowed(values, kept_in))
    waiting = stored.widened(kept, (5, 3)).numpy()
    np.testing.assert_allclose(waiting, values, rtol=2**-8, atol=np.abs(values).max() / 253)
    gradient = np.random.default_rng(2).normal(size=(5, 3)).astype(dtype)
    gradient[1, 2], gradient[3, 0] = np.nan, np.inf
    (total,) = residuals.emptied_into([tf.constant(gradient)], [kept])
    exact = gradient.astype(np.promote_types(dtype, "f")) + waiting
    np.testing.assert_array_equal(total, exact.astype(dtype))
    left = np.where(np.isfinite(exact), 0, waiting)
    atol = 0.01 if kept_in == tf.int8 else 0  # with another scale
    np.testing.assert_allclose(stored.widened(kept, (5, 3)), left, rtol=0, atol=atol)


@pytest.mark.parametrize("kept_in", [np.float32, ml_dtypes.bfloat16], ids=np.dtype)
@pytest.mark.parametrize("all_rows", [False, True])
def test_they_are_added_to_rows_likewise(all_rows: bool, kept_in: Any) -> None:
    waiting = np.random.default_rng(1).normal(size=(5, 3)).astype(kept_in)
    values = np.random.default_rng(2).normal(size=(3, 3)).astype("f")
    values[0, 0], values[2, 2] = np.inf, np.nan
    waiting[1, 1] = values[1, 1] = 3e38  # together they are not finite
    waiting[4] = 0
    indices = [3, 1, 1]  # of equal ones the sum counts
    kept = tf.Variable(waiting)
    rows = tf.IndexedSlices(tf.constant(values), tf.constant(indices), (5, 3))
    (sent,) = residuals.emptied_into([rows], [kept], all_rows)
    assert {*sent.indices.numpy()} == ({0, 1, 2, 3} if all_rows else {1, 3})
    stays = np.full((5, 3), not all_rows)
    stays[indices] = False
    stays[3, 0] = stays[1, 2] = stays[1, 1] = True
    left = np.where(stays, waiting.astype("f"), 0)
    np.testing.assert_array_equal(tf.cast(kept, tf.float32), left)
    total, expected = np.zeros((5, 3)), np.where(stays, 0, waiting.astype(float))
    np.add.at(total, sent.indices, sent.values.numpy().astype(float))
    np.add.at(expected, indices, values.astype(float))
    np.testing.assert_array_equal(total, expected)


def test_threads_change_what_is_kept_one_after_the_other() -> None:
    strategy = strategy_of(CODEC)
    (variable,) = variables_of(strategy, v=3)
    state, stream = strategy.compression_state, named_stream("")
    calls: list[Callable[[], Any]] = [
        lambda: state.value(residuals.SLOT, stream, variable),
        lambda: state.notes(stream, variable),
        lambda: state.has(residuals.SLOT, stream, variable),
        lambda: state.entries(variable),
        lambda: state.key(variable),
        lambda: state.saved(),
        lambda: state.restore([]),
        lambda: state.reset(),
    ]
    others = [threading.Thread(target=call) for call in calls]
    with state._lock:
        for other in others:
            other.start()
        others[0].join(0.5)
        assert all(other.is_alive() for other in others)
    for other in others:
        other.join()
