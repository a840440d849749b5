"""What a Keras optimizer does around the reduction of gradients."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.cases import cases
from tests.keras.compressed import (
    NONE,
    assert_replicas_agree,
    assert_trains_compressed,
    components,
    compressed_strategy,
)
from tests.keras.flavour import keras
from tests.keras.stock import Run, assert_same_bits, assert_same_run, fit, stock_strategy


def optimizer(**clipping: float) -> Callable[[], keras.optimizers.Optimizer]:
    """With a schedule, weight decay and averages of weights, none of which hides the others."""

    def make() -> keras.optimizers.Optimizer:
        falling = keras.optimizers.schedules.PiecewiseConstantDecay([4], [0.1, 0.05])
        return keras.optimizers.SGD(
            falling, weight_decay=0.01, use_ema=True, ema_momentum=0.5, **clipping
        )

    return make


@pytest.fixture(scope="module")
def unclipped() -> Run:
    return fit(stock_strategy(), optimizer=optimizer())


# tests/keras2 has the same options with tf_keras.
@cases("name, limit", ("global_clipnorm", 0.1), ("clipnorm", 0.05), ("clipvalue", 0.02))
def test_options_work_as_under_the_stock_strategy(unclipped: Run, name: str, limit: float) -> None:
    clipped = optimizer(**{name: limit})
    expected = fit(stock_strategy(), optimizer=clipped)
    assert_same_run(fit(compressed_strategy(params=NONE), optimizer=clipped), expected)
    # Clipping does something.
    for a, b in zip(unclipped.model.get_weights(), expected.model.get_weights(), strict=True):
        assert not np.array_equal(a, b)
    strategy = compressed_strategy()
    compressed = fit(strategy, optimizer=clipped)
    assert_trains_compressed(strategy, compressed, like=expected)
    made = compressed.model.optimizer
    assert_replicas_agree(strategy, made.variables)
    # fit() ends by putting the averages in place of the weights.
    averages = made._model_variables_moving_average
    for average, variable in zip(averages, compressed.model.trainable_variables, strict=True):
        assert (average.numpy() != 0).any()
        assert_same_bits(components(average)[0], components(variable)[0])
