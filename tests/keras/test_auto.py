"""`fit` under `tf_gc.Auto`: a trial in loops of steps."""

import keras
import numpy as np

import tf_gc
from tests.keras.stock import compiled
from tests.strategies.helpers import cpus
from tf_gc.params.composed import COMPRESSED
from tf_gc.steps.trial import STEPS

PARAMS = tf_gc.Auto(tf_gc.Quantized(warm_up=False), COMPRESSED)
BATCH = 20

_random = np.random.default_rng(1)
X = _random.normal(size=(BATCH * (STEPS + 12), 20)).astype("f")
Y = _random.integers(10, size=len(X))


def wide_mlp() -> keras.Model:
    hidden = keras.layers.Dense(128, "relu")
    return keras.Sequential([keras.Input((20,)), hidden, keras.layers.Dense(10)])


def test_a_trial_inside_of_loops_is_that_of_single_steps() -> None:
    weights = []
    for steps in (1, 6):
        strategy = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
        model = compiled(strategy, wide_mlp, keras.optimizers.Adam, steps_per_execution=steps)
        model.fit(X, Y, BATCH, verbose=0, shuffle=False)
        assert strategy.report().trial.chosen == strategy.report().trial.current == COMPRESSED
        weights.append(model.get_weights())
    for mine, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(mine, other)
