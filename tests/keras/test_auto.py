"""`fit` under `tf_gc.Auto`: a trial in loops of steps, and after a restart."""

from pathlib import Path

import keras
import numpy as np

import tf_gc
from tests.cases import cases
from tests.keras.stock import compiled
from tests.strategies.helpers import cpus
from tf_gc.params.composed import COMPRESSED, FULL_PRECISION
from tf_gc.steps.trial import STEPS

CHOICE = COMPRESSED
PARAMS = tf_gc.Auto(tf_gc.Quantized(warm_up=False), CHOICE)
BATCH = 20

_random = np.random.default_rng(1)
X = _random.normal(size=(BATCH * (STEPS + 12), 20)).astype("f")
Y = _random.integers(10, size=len(X))


def make(steps_per_execution: int = 1) -> tuple[tf_gc.CompressedMirroredStrategy, keras.Model]:
    def mlp() -> keras.Model:
        hidden = keras.layers.Dense(128, "relu")
        return keras.Sequential([keras.Input((20,)), hidden, keras.layers.Dense(10)])

    strategy = tf_gc.CompressedMirroredStrategy(cpus(2), PARAMS)
    options = {"steps_per_execution": steps_per_execution}
    return strategy, compiled(strategy, mlp, keras.optimizers.Adam, **options)


def test_a_trial_inside_of_loops_is_that_of_single_steps() -> None:
    weights = []
    for steps in (1, 6):
        strategy, model = make(steps)
        model.fit(X, Y, BATCH, verbose=0, shuffle=False)
        assert strategy.report().trial.chosen == strategy.report().trial.current == CHOICE
        weights.append(model.get_weights())
    for mine, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(mine, other)


@cases("when, done", ("after", STEPS + 2), ("amid", 10))
def test_a_restart_goes_on_with_the_trial_and_with_its_choice(
    tmp_path: Path, when: str, done: int
) -> None:
    for epochs, current in ((1, None), (2, CHOICE)):
        strategy, model = make()
        backup = tf_gc.keras.BackupAndRestore(str(tmp_path), delete_checkpoint=False)
        model.fit(X[: BATCH * done], Y[: BATCH * done], BATCH, epochs, 0, [backup])
        if when == "after":
            assert current in (None, strategy.report().trial.current)
    # The second epoch ends in the fifth turn of the trial, or past the trial.
    trial = strategy.report().trial
    assert trial.current == (FULL_PRECISION if when == "amid" else CHOICE)
    assert trial.chosen is None  # this process has not seen the end of a trial
    steps = strategy.report().compressed_steps + strategy.report().warm_up_steps
    assert steps == done
