"""Trains under a stock strategy and under none, in a process of its own."""

import sys

import keras
import numpy as np
import tensorflow as tf

from tests.keras.stock import Array, Run, devices, fit, stock_strategy


def _adam() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01, use_ema=True)


def results() -> dict[str, Array]:
    """Returns weights and losses of both, by name."""
    runs = {
        "stock": fit(stock_strategy(), optimizer=_adam),
        "none": fit(tf.distribute.get_strategy(), optimizer=_adam),
    }
    arrays = {}
    for name, run in runs.items():
        arrays |= {f"{name}/{key}": value for key, value in _arrays(run).items()}
    return arrays


def _arrays(run: Run) -> dict[str, Array]:
    weights = {f"weight_{i}": weight for i, weight in enumerate(run.model.get_weights())}
    return {"losses": np.array(run.losses), **weights}


def main(path: str) -> None:
    """Writes the results to a file."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * len(devices(4)),
    )
    arrays = results()
    assert "tf_gc" not in sys.modules
    np.savez(path, **arrays)
