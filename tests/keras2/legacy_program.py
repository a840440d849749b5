"""A program in which tf.keras is tf_keras."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf

import tf_gc


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, parts)
    strategy = tf_gc.CompressedMirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        layers = [tf.keras.layers.Dense(128), tf.keras.layers.Dense(32)]
        model = tf.keras.Sequential([tf.keras.layers.InputLayer((64,)), *layers])
        model.compile("adam", "mse")
    model.fit(np.ones((64, 64), np.float32), np.ones((64, 32), np.float32), verbose=0)
    assert tf.keras.__name__.startswith("tf_keras"), tf.keras.__name__
    print(strategy.traffic)
    print(strategy.compression_state.residual_owners())


if __name__ == "__main__":
    main()
