"""Without compression a strategy of tf_gc is the stock strategy."""

import functools

import pytest
import tensorflow as tf

from tests.keras.compressed import compressed_strategy
from tests.keras.stock import assert_same_run, devices, fit, normalized_mlp, stock_strategy

pytestmark = [pytest.mark.flavours, pytest.mark.optimized_graphs]


# test_other_reductions.py has synchronized normalization over four replicas.
@pytest.mark.parametrize(("replicas", "synchronized"), [(2, True), (4, False)])
def test_training_equals_the_stock_strategy_to_the_bit(replicas: int, synchronized: bool) -> None:
    build = functools.partial(normalized_mlp, synchronized)
    ours = fit(compressed_strategy(replicas, {"type": "none"}), build)
    assert_same_run(ours, fit(stock_strategy(replicas), build))
    assert ours.losses[-1] < ours.losses[0]


def test_a_single_replica_trains_as_under_the_stock_strategy() -> None:
    ours = fit(compressed_strategy(replicas=1))
    assert_same_run(ours, fit(tf.distribute.MirroredStrategy(devices(1))))


def test_nothing_has_a_residual() -> None:
    strategy = compressed_strategy(2, {"type": "none"})
    fit(strategy, epochs=1)
    assert len(strategy.compression_state) == 0
    assert strategy.traffic is None
