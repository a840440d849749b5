"""After compressed training all replicas hold the same bits."""

import pytest

import tf_gc
from tests.cases import cases
from tests.keras.compressed import (
    AUTO,
    FIXED,
    assert_replicas_agree,
    components,
    compressed_strategy,
)
from tests.keras.flavour import keras, tf_variable
from tests.keras.stock import CLASSES, FEATURES, MakeOptimizer, fit

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
}


@pytest.mark.flavours
@cases("name, replicas, codec", ("adamw", 4, AUTO), ("momentum", 2, FIXED))
def test_replicas_hold_the_same_bits(
    name: str, replicas: int, codec: tf_gc.params.CompressionParams
) -> None:
    strategy = compressed_strategy(replicas, codec)
    run = fit(strategy, optimizer=OPTIMIZERS[name])
    assert_replicas_agree(strategy, run.model.trainable_variables)
    # Slots, the step counter and the learning rate.
    assert_replicas_agree(strategy, run.model.optimizer.variables)
    assert run.losses[-1] < run.losses[0]
    # Each replica keeps what it did not send of its own gradient, of every variable.
    assert len(strategy.compression_state) == len(run.model.trainable_variables) == 4
    for variable in run.model.trainable_variables:
        first, second, *_ = strategy.compression_state.residuals_of(tf_variable(variable))
        assert first.shape == variable.shape
        assert (first.numpy() != second.numpy()).any()


def test_a_large_variable_is_compressed_and_a_small_one_is_not_by_default() -> None:
    def build() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((FEATURES,)),
                keras.layers.Dense(256, activation="relu"),
                keras.layers.Dense(CLASSES),
            ]
        )

    strategy = compressed_strategy(2, None)
    run = fit(strategy, build, epochs=2)
    assert strategy.traffic is not None
    assert strategy.traffic.compressed_tensors == 1
    assert strategy.traffic.bypassed_tensors == 3
    assert len(strategy.compression_state) == 1
    assert_replicas_agree(strategy, run.model.trainable_variables)
    assert components(run.model.layers[0].kernel)[0].size >= 2048
    assert run.losses[-1] < run.losses[0]
