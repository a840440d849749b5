"""What a Keras optimizer does around the reduction of gradients."""

from typing import Any

import numpy as np
import pytest

from tests.keras.compressed import (
    AUTO,
    NONE,
    assert_replicas_agree,
    assert_trains_compressed,
    components,
    compressed_strategy,
)
from tests.keras.flavour import keras
from tests.keras.stock import Run, assert_same_bits, assert_same_run, fit, stock_strategy

pytestmark = pytest.mark.flavours

OPTIONS: dict[str, dict[str, Any]] = {
    "clipnorm": {"clipnorm": 0.05},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.02},
    "weight_decay": {"weight_decay": 0.01},
    "schedule": {},
}


@pytest.fixture(scope="module")
def plain() -> Run:
    """Training under the stock strategy without any option."""
    return fit(stock_strategy())


@pytest.mark.parametrize("name", OPTIONS)
def test_options_work_as_under_the_stock_strategy(plain: Run, name: str) -> None:
    def optimizer() -> keras.optimizers.Optimizer:
        falling = keras.optimizers.schedules.PiecewiseConstantDecay([4], [0.1, 0.01])
        return keras.optimizers.SGD(falling if name == "schedule" else 0.1, **OPTIONS[name])

    expected = fit(stock_strategy(), optimizer=optimizer)
    assert_same_run(fit(compressed_strategy(params=NONE), optimizer=optimizer), expected)
    strategy = compressed_strategy()
    compressed = fit(strategy, optimizer=optimizer)
    assert_trains_compressed(strategy, compressed, like=expected)
    assert_replicas_agree(strategy, compressed.model.optimizer.variables)
    # The option does something.
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(plain.model.get_weights(), expected.model.get_weights(), strict=True)
    )


def test_averages_of_weights_are_alike_and_replace_them_at_the_end() -> None:
    def optimizer() -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)

    uncompressed = fit(compressed_strategy(params=NONE), optimizer=optimizer)
    expected = fit(stock_strategy(), optimizer=optimizer)
    assert_same_run(uncompressed, expected)
    strategy = compressed_strategy(2, AUTO)
    model = fit(strategy, optimizer=optimizer).model
    averages = model.optimizer._model_variables_moving_average
    assert_replicas_agree(strategy, averages)
    # fit() ends by putting the averages in place of the weights.
    for average, variable in zip(averages, model.trainable_variables, strict=True):
        assert_same_bits(components(average)[0], components(variable)[0])
    assert (averages[0].numpy() != 0).any()
