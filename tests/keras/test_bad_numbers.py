"""A gradient that is not finite on one replica: seen by all, kept by none."""

from typing import Any

import keras
import numpy as np

import tf_gc
from tests.cases import cases
from tests.keras.compressed import components, compressed_strategy
from tests.keras.stock import BATCH, CLASSES, FEATURES, assert_same_bits, compiled, data
from tests.strategies.helpers import cpus, reducer, variables_of

DEFAULT = tf_gc.Quantized(warm_up=False, bypass_size=0, plan="scatter_gather")


# tests/steps, tests/reducers and tests/custom_ops ask all codecs.
@cases(
    "codec",
    DEFAULT,
    tf_gc.TwoBit(0.01, warm_up=False, bypass_size=0, plan="all_gather"),
    tf_gc.TwoBit(warm_up=False, bypass_size=10_000),
    tf_gc.NoCompression(),
    ids=str,
)
def test_every_replica_sees_it_in_that_element_once(codec: Any) -> None:
    replicas = 3
    strategy = tf_gc.CompressedMirroredStrategy(cpus(replicas), codec)
    run = reducer(strategy, variables_of(strategy, (900,)))
    clean = np.random.default_rng(1).normal(size=(replicas, 900)).astype(np.float32)
    for replica, element, bad in ((0, 3, np.nan), (1, 450, np.inf), (2, 899, -np.inf)):
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


@cases("codec, replica", (DEFAULT, 1), (tf_gc.NoCompression(), 0), ids=str)
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
