"""Trains under a stock strategy and under none, in a process of its own."""

import sys

import keras
import numpy as np
import tensorflow as tf

from tests.keras.stock import Array, cpus, fit, stock_strategy


def _adam() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01, use_ema=True)


def results() -> dict[str, Array]:
    arrays = {}
    for name, strategy in {"stock": stock_strategy(), "none": tf.distribute.get_strategy()}.items():
        run = fit(strategy, optimizer=_adam)
        for i, array in enumerate([np.array(run.losses), *run.model.get_weights()]):
            arrays[f"{name}/{i}"] = array
    return arrays


def main(path: str) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * len(cpus(4)),
    )
    arrays = results()
    assert "tf_gc" not in sys.modules
    np.savez(path, **arrays)
