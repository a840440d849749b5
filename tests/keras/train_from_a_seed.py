"""Trains from a seed, and prints a digest of all that training leaves: for test_determinism.py."""

import functools
import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc

GATHER, SCATTER = "all_gather", "scatter_gather"
AUTO, FIXED, ONE_BIT = tf_gc.Quantized, functools.partial(tf_gc.TwoBit, 0.01), tf_gc.OneBit
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3
)
random = np.random.default_rng(0)
x, y = random.normal(size=(600, 40)), random.integers(5, size=600)


def train(*cases: tuple[Any, str]) -> None:
    for codec, plan in cases:
        strategy = tf_gc.CompressedMirroredStrategy(
            ["CPU:0", "CPU:1", "CPU:2"], codec(warm_up=False, bypass_size=0, plan=plan)
        )
        with strategy.scope():
            layers = [keras.layers.Dense(200, activation="relu"), keras.layers.Dropout(0.3)]
            model = keras.Sequential([keras.Input((40,)), *layers, keras.layers.Dense(5)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
        model.fit(x, y, 50, epochs=1, verbose=0)
        state = [*model.get_weights(), *(v.numpy() for v in strategy.compression_state.variables)]
        assert all(np.isfinite(value).all() for value in state)
        print("digest", hashlib.sha256(b"".join(value.tobytes() for value in state)).hexdigest())


# Each codec under one plan, and with op determinism each plan with a codec that it was not with.
keras.utils.set_random_seed(3)
train((AUTO, GATHER), (FIXED, SCATTER), (ONE_BIT, GATHER))
tf.config.experimental.enable_op_determinism()
keras.utils.set_random_seed(3)
train((FIXED, GATHER), (ONE_BIT, SCATTER))
