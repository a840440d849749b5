"""Trains from a seed, and prints a digest of all that training leaves: for test_determinism.py.

The argument says whether with few codecs and plans, or with all.
"""

import functools
import hashlib
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc

GATHER, SCATTER = "all_gather", "scatter_gather"
AUTO, FIXED = tf_gc.Quantized, functools.partial(tf_gc.TwoBit, 0.01)


def digest(strategy: Any) -> str:
    """Trains under a strategy; returns a digest of weights and residuals."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(600, 40)), random.integers(5, size=600)
    with strategy.scope():
        layers = [keras.layers.Dense(200, activation="relu"), keras.layers.Dropout(0.3)]
        model = keras.Sequential([keras.Input((40,)), *layers, keras.layers.Dense(5)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    model.fit(x, y, 50, epochs=1, verbose=0)
    left = [variable.numpy() for variable in strategy.compression_state.variables]
    assert any(value.any() for value in left)
    state = [*model.get_weights(), *left]
    assert all(np.isfinite(value).all() for value in state)
    return hashlib.sha256(b"".join(value.tobytes() for value in state)).hexdigest()


def train(*cases: tuple[Any, str]) -> None:
    keras.utils.set_random_seed(3)
    for codec, plan in cases:
        params = codec(warm_up=False, bypass_size=0, plan=plan)
        strategy = tf_gc.CompressedMirroredStrategy(["CPU:0", "CPU:1", "CPU:2"], params)
        print("digest", digest(strategy))


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3
    )
    # Each codec under one plan, and with op determinism under the other; a few have either last.
    few = sys.argv[1] == "few"
    train(*[(FIXED, GATHER), (AUTO, SCATTER)][few:])
    tf.config.experimental.enable_op_determinism()
    train(*[(AUTO, GATHER), (FIXED, SCATTER)][few:])
