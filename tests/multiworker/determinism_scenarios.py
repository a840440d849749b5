"""What workers do in the tests of determinism."""

from __future__ import annotations

import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc


def digests(default: list[Any], op_determinism: list[Any]) -> dict[str, list[str]]:
    """Trains a model from a seed under each codec; returns digests of weights and residuals.

    Those of the second list come last: `enable_op_determinism` cannot be turned off.
    """
    results = {}
    for name, all_params in (("default", default), ("op_determinism", op_determinism)):
        if name == "op_determinism":
            tf.config.experimental.enable_op_determinism()
        keras.utils.set_random_seed(3)
        results[name] = [_digest(params) for params in all_params]
    return results


def _digest(params: Any) -> str:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    with strategy.scope():
        layers = [keras.layers.Dense(200, activation="relu"), keras.layers.Dropout(0.3)]
        model = keras.Sequential([keras.Input((40,)), *layers, keras.layers.Dense(5)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(240, 40)), random.integers(5, size=240)
    model.fit(x, y, batch_size=24, epochs=1, verbose=0)
    assert strategy.traffic.compressed_tensors > 0
    plans = strategy.traffic.plan.split(", ")
    assert params.get("plan", "all_reduce") in plans
    left = [variable.numpy() for variable in strategy.compression_state.variables]
    assert any(value.any() for value in left)
    state = [*model.get_weights(), *left]
    assert all(np.isfinite(value).all() for value in state)
    return hashlib.sha256(b"".join(value.tobytes() for value in state)).hexdigest()
