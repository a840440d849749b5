"""Compressed strategies of logical CPU devices, and what must hold under them."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc
from tests.bits import assert_same_bits
from tests.keras import stock
from tf_gc.keras.variables import tf_variable

# Small models are compressed too: nothing is bypassed for its size.
AUTO = tf_gc.Quantized(warm_up=False, bypass_size=0)
FIXED = tf_gc.TwoBit(0.05, bypass_size=0)
NONE = tf_gc.NoCompression()


def compressed_strategy(
    replicas: int = 2, params: Any = AUTO, average_layer_state: bool | None = None
) -> tf_gc.CompressedMirroredStrategy:
    return tf_gc.CompressedMirroredStrategy(
        stock.cpus(replicas), params, average_layer_state=average_layer_state
    )


def components(variable: Any) -> list[stock.Array]:
    return [component.numpy() for component in tf_variable(variable).values]


def assert_replicas_agree(strategy: tf.distribute.Strategy, variables: Iterable[Any]) -> None:
    """Each variable has a component on each replica, all of the same bits."""
    variables = list(variables)
    assert variables
    for variable in variables:
        first, *others = components(variable)
        assert len(others) == strategy.num_replicas_in_sync - 1
        for other in others:
            assert_same_bits(first, other)


def assert_trains_compressed(
    strategy: tf_gc.CompressedMirroredStrategy, run: stock.Run, like: stock.Run
) -> None:
    """Gradients were compressed, replicas agree, and training went about as under stock.

    The weights differ from the ones of `like`: otherwise nothing was compressed.
    """
    assert strategy.traffic.compressed_tensors > 0
    assert run.history.keys() == like.history.keys()
    assert_replicas_agree(strategy, run.model.trainable_variables)
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(run.model.get_weights(), like.model.get_weights(), strict=True)
    )
    stock_progress = like.losses[0] - like.losses[-1]
    assert stock_progress > 0
    assert run.losses[0] - run.losses[-1] > 0.5 * stock_progress


def total_residual(strategy: tf_gc.CompressedMirroredStrategy, variable: Any) -> stock.Array:
    residuals = strategy.compression_state.residuals_of(tf_variable(variable))
    assert len(residuals) == strategy.num_replicas_in_sync
    return np.sum([residual.numpy() for residual in residuals], axis=0)
