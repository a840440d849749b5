"""Without compression a strategy of tf_gc is the stock strategy."""

import functools

import pytest
import tensorflow as tf

from tests.cases import matrix
from tests.keras.compressed import compressed_strategy
from tests.keras.stock import assert_same_run, devices, fit, normalized_mlp, stock_strategy

pytestmark = pytest.mark.optimized_graphs  # tests/keras2 asks the same of tf_keras


def test_training_equals_the_stock_strategy_to_the_bit() -> None:
    build = functools.partial(normalized_mlp, True, False)
    strategy = compressed_strategy(4, {"type": "none"})
    ours = fit(strategy, build)
    assert_same_run(ours, fit(stock_strategy(4), build))
    assert ours.losses[-1] < ours.losses[0]
    assert len(strategy.compression_state) == 0
    assert strategy.traffic is None


@matrix
def test_a_single_replica_trains_as_under_the_stock_strategy() -> None:
    ours = fit(compressed_strategy(replicas=1))
    assert_same_run(ours, fit(tf.distribute.MirroredStrategy(devices(1))))
