"""Only gradients are compressed: all other reductions are the stock strategy's, to the bit."""

import functools

import keras
import numpy as np

from tests.keras.compressed import AUTO, compressed_strategy
from tests.keras.stock import assert_same_run, fit, normalized_mlp, stock_strategy


def test_runs_that_update_no_weight_equal_stock() -> None:
    """So losses, metrics and statistics of every step are equal."""
    train = functools.partial(
        fit,
        build=functools.partial(normalized_mlp, True, False),
        optimizer=lambda: keras.optimizers.SGD(0.0),
    )
    # The stock strategy leaves the statistics to the replicas.
    strategy = compressed_strategy(4, AUTO, average_layer_state=False)
    ours = train(strategy)
    assert_same_run(ours, train(stock_strategy(4)))
    assert strategy.traffic is not None
    assert strategy.traffic.bypassed_tensors == 0
    assert len(strategy.compression_state) == len(ours.model.trainable_variables)
    assert all(np.any(v.numpy() != 0) for v in ours.model.non_trainable_variables[:4])
