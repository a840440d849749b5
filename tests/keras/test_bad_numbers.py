"""A gradient that is not finite on one replica: seen by all, kept by none."""

from typing import Any

import numpy as np
import pytest

import tf_gc
from tests.keras.compressed import components, compressed_strategy
from tests.keras.flavour import keras
from tests.keras.stock import BATCH, CLASSES, FEATURES, assert_same_bits, compiled, data
from tests.strategies.helpers import cpus, reducer, variables_of

CODECS = [
    tf_gc.TwoBit(threshold, warm_up=False, bypass_size=bypass_size, plan=plan)
    for plan in ("all_gather", "scatter_gather")
    for threshold, bypass_size in (("auto", 0), (0.01, 0), ("auto", 10_000))
] + [
    *(
        tf_gc.Quantized(warm_up=False, bypass_size=0, plan=p)
        for p in ("all_gather", "scatter_gather")
    ),
    tf_gc.NoCompression(),
]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_every_replica_sees_it_in_that_element_once(codec: Any, replicas: int, bad: float) -> None:
    strategy = tf_gc.CompressedMirroredStrategy(cpus(replicas), codec)
    run = reducer(strategy, variables_of(strategy, (900,)))
    clean = np.random.default_rng(1).normal(size=(replicas, 900)).astype(np.float32)
    for replica, element in ((0, 3), (1, 450), (replicas - 1, 899)):
        run([clean])
        before = [components(r)[replica] for r in strategy.compression_state.variables]
        gradients = clean.copy()
        gradients[replica, element] = bad
        for (total,) in run([gradients]):
            assert not np.isfinite(total[element])
            assert np.isfinite(np.delete(total, element)).all()
        for residual, old in zip(strategy.compression_state.variables, before, strict=True):
            assert components(residual)[replica][element] == old[element]
            assert all(np.isfinite(component).all() for component in components(residual))
        for (total,) in run([clean]):
            assert np.isfinite(total).all()


def linear() -> keras.Model:
    # An activation could hide the bad number for a step: TensorFlow's ReLU of NaN is 0.
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(CLASSES)])


@pytest.mark.flavours
# The same codecs as above, each with one of the replicas: what a step does is shown there.
@pytest.mark.parametrize(
    ("codec", "replica"),
    [(codec, number % 2) for number, codec in enumerate(CODECS)],
    ids=str,
)
def test_terminate_on_nan_stops_after_the_step(codec: Any, replica: int) -> None:
    strategy = compressed_strategy(2, codec)
    model = compiled(strategy, linear)
    x, y = data()
    x[2 * BATCH + replica * BATCH // 2] = np.inf
    callbacks = [keras.callbacks.TerminateOnNaN()]
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    assert int(model.optimizer.iterations.numpy()) == 3
    for variable in model.trainable_variables:
        first, second = components(variable)
        assert_same_bits(first, second)
    assert all(np.isfinite(r).all() for r in strategy.compression_state.variables)
