"""Streams: what was not sent of one loss is not sent with the gradient of another."""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.keras.stock import BATCH, compiled, cross_entropy, data, named_mlp
from tests.strategies.helpers import strategy_of
from tf_gc.state import residuals

# Nothing but a gradient of at least 1 is sent.
FIXED = tf_gc.TwoBit(1.0)


def variable_of(strategy: tf.distribute.Strategy, name: str = "trunk") -> tf.Variable:
    with strategy.scope():
        return tf.Variable(tf.zeros(4), name=name)


def left(strategy: tf_gc.CompressedMirroredStrategy) -> dict[str, float]:
    """The first element of each sum of residuals, by the name of variable and stream."""
    entries = strategy.compression_state.entries(slot=residuals.SLOT)
    return {str(e.key): round(float(e.value.numpy().flat[0]), 5) for e in entries}


def run(
    strategy: tf.distribute.Strategy, calls: Sequence[Sequence[Any]], eager: bool = False
) -> list[Any]:
    """Sums gradients in one run: each call has a value for all its gradients, variables, a name."""

    def replica_step() -> list[Any]:
        return [
            tf_gc.all_reduce_gradients([(tf.fill(v.shape, value), v) for v in variables], stream)
            for value, variables, stream in calls
        ]

    sums = (strategy.run if eager else tf.function(strategy.run))(replica_step)
    local = strategy.experimental_local_results
    return [[float(local(total)[0][0]) for total in call] for call in sums]


def test_garbage_takes_no_name(caplog: pytest.LogCaptureFixture) -> None:
    """Or the names in a checkpoint would depend on when a process collects its garbage."""
    strategy = strategy_of(tf_gc.Quantized(bypass_size=0))

    def train() -> list[Any]:
        with strategy.scope():
            variables = [keras.Variable(np.zeros(40), name=name) for name in "ab"]
            optimizer = keras.optimizers.SGD(1.0, name="SGD")
            optimizer.build(variables)
        strategy.run(tf.function(lambda: optimizer.apply([tf.ones([40])] * 2, variables)))
        model: list[Any] = [variables, optimizer]
        model.append(model)  # a cycle
        return model

    gc.collect()
    gc.disable()
    train()
    model = train()
    gc.enable()
    assert sorted(strategy.compression_state.residual_owners()) == ["a of SGD", "b of SGD"]
    assert "AutoGraph" not in caplog.text  # which would keep what it could not convert
    del model


@cases("eager", False, True)
def test_two_calls_for_one_variable_are_two_streams(eager: bool) -> None:
    strategy = strategy_of(FIXED)
    trunk, head = variable_of(strategy), variable_of(strategy, "head")
    calls = [(0.4, [trunk], None), (0.001, [trunk, head], None)]
    sums = [run(strategy, calls, eager) for _ in range(3)]
    # The first call sends after three steps, by both replicas; of the second nothing is sent.
    assert sums == [[[0.0], [0.0, 0.0]]] * 2 + [[[2.0], [0.0, 0.0]]]
    assert left(strategy) == {
        "trunk": pytest.approx(0.4, abs=1e-5),
        "trunk of call 2": 0.006,
        "head of call 2": 0.006,
    }


def test_calls_for_different_variables_may_change_places() -> None:
    strategy = strategy_of(FIXED)
    a, b = variable_of(strategy, "a"), variable_of(strategy, "b")
    run(strategy, [(0.1, [a], None), (0.2, [b], None)])
    run(strategy, [(0.2, [b], None), (0.1, [a], None)])
    assert left(strategy) == {"a": 0.4, "b": 0.8}


def test_a_name_says_whose_gradients_they_are() -> None:
    strategy = strategy_of(FIXED)
    trunk = variable_of(strategy)
    run(strategy, [(0.1, [trunk], "actor"), (0.2, [trunk], "critic")])
    run(strategy, [(0.2, [trunk], "critic")])
    run(strategy, [(0.3, [trunk], None), (0.1, [trunk], "actor")])
    assert left(strategy) == {"trunk of actor": 0.4, "trunk of critic": 0.8, "trunk": 0.6}
    with pytest.raises(TypeError, match="stream must be None or a string, got 3"):
        run(strategy, [(0.1, [trunk], 3)])


DEFAULT = tf_gc.Quantized(bypass_size=0)


def slow(**settings: Any) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.001, **settings)


def fit(model: keras.Model, epochs: int = 1) -> None:
    model.fit(*data(), batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)


@cases("params", DEFAULT, tf_gc.TwoBit(0.5), tf_gc.Quantized(warm_up=False, bypass_size=0))
def test_folds_are_the_same_to_the_bit(params: Any) -> None:
    strategy = strategy_of(params)
    model = compiled(strategy, named_mlp, keras.optimizers.Adam)
    first = model.get_weights()
    folds = []
    for _ in range(3):
        model.set_weights(first)
        with strategy.scope():
            model.compile("adam", cross_entropy())
        fit(model, 2)
        folds.append([weight.view(np.int32) for weight in model.get_weights()])
    assert (folds[0][0] != first[0].view(np.int32)).any()
    np.testing.assert_equal(folds[1:], folds[:1] * 2)
    assert len(strategy.compression_state) == 4  # the optimizers of earlier folds left nothing


def test_the_same_optimizer_keeps_its_residuals() -> None:
    strategy = strategy_of(FIXED)
    model = compiled(strategy, named_mlp, slow)
    first = model.get_weights()
    fit(model)
    before = left(strategy)
    assert all(before.values())
    model.set_weights(first)
    with strategy.scope():
        model.compile(model.optimizer, cross_entropy())
    assert left(strategy) == before
    fit(model)
    assert left(strategy).keys() == before.keys()
    assert left(strategy) != before
    strategy.compression_state.reset()
    assert not any(left(strategy).values())


@cases(
    "make, settings",
    (lambda: slow(gradient_accumulation_steps=2), {}),
    (lambda: slow(use_ema=True, ema_overwrite_frequency=3), {}),
    (lambda: keras.optimizers.LossScaleOptimizer(slow()), {}),
    (slow, {"steps_per_execution": 4}),
    (slow, {"run_eagerly": True}),
)
def test_an_optimizer_is_one_stream(make: Callable[[], Any], settings: dict[str, Any]) -> None:
    strategy = strategy_of(FIXED)
    model = compiled(strategy, named_mlp, make, **settings)
    fit(model)
    model.make_train_function(force=True)  # traced anew
    fit(model)
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    assert left(strategy).keys() == {f"{v.path} of {inner.name}" for v in model.trainable_variables}


def test_what_a_stream_has_ends_with_its_optimizer() -> None:
    strategy = strategy_of(FIXED)
    trunk = variable_of(strategy)
    with strategy.scope():
        optimizers = [keras.optimizers.SGD(0.01, name=name) for name in ("one", "two")]
    for optimizer in optimizers:
        optimizer.build([trunk])
        strategy.run(lambda each: each.apply([tf.fill(trunk.shape, 0.1)], [trunk]), (optimizer,))
    assert left(strategy) == {"trunk of one": 0.2, "trunk of two": 0.2}
    del optimizers[0], optimizer
    gc.collect()
    assert left(strategy) == {"trunk of two": 0.2}


ACTOR_CRITIC = [(0.1, "actor"), (0.25, "critic")]


@cases("order, step_first", (-1, False), (1, True))
def test_a_checkpoint_holds_all_streams(tmp_path: Path, order: int, step_first: bool) -> None:
    saved = strategy_of(FIXED)
    trunk = variable_of(saved)
    run(saved, [(value, [trunk], name) for value, name in ACTOR_CRITIC])
    path = tf.train.Checkpoint(state=saved.compression_state).save(tmp_path / "checkpoint")

    strategy = strategy_of(FIXED, 4)
    trunk = variable_of(strategy)
    calls = [(0.0, [trunk], name) for _, name in ACTOR_CRITIC][::order]
    if step_first:
        run(strategy, calls)
    tf.train.Checkpoint(state=strategy.compression_state).restore(path)
    if not step_first:
        assert left(strategy) == {}
        np.testing.assert_allclose(strategy.compression_state.total(trunk), 0.7, rtol=1e-6)
    run(strategy, calls)
    assert left(strategy) == {"trunk of actor": 0.2, "trunk of critic": 0.5}


def test_streams_with_other_names_get_what_waits_longest(tmp_path: Path) -> None:
    """Keras numbers the names of optimizers as a process happens to make them."""
    saved = strategy_of(FIXED)
    trunk = variable_of(saved)
    run(saved, [(0.1, [trunk], "adam_7")])
    path = tf.train.Checkpoint(state=saved.compression_state).save(tmp_path / "first")
    between = tf.train.Checkpoint(state=strategy_of(FIXED).compression_state)
    between.restore(path)
    path = between.save(tmp_path / "second")  # what waits is saved again
    strategy = strategy_of(FIXED)
    trunk = variable_of(strategy)
    checkpoint = tf.train.Checkpoint(state=strategy.compression_state)
    checkpoint.restore(path)
    run(strategy, [(0.0, [trunk], "adam"), (0.0, [trunk], "adam_7"), (0.0, [trunk], "adam_1")])
    assert left(strategy) == {"trunk of adam": 0.2, "trunk of adam_7": 0.0, "trunk of adam_1": 0.0}
    checkpoint.restore(path)  # where all of them are
    assert left(strategy) == {"trunk of adam": 0.0, "trunk of adam_7": 0.2, "trunk of adam_1": 0.0}
