"""What processes do that do not import tf_gc: they train, and load what was trained under it."""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tests.keras.stock import Array, fit, mlp, stock_strategy


def _adam() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01, use_ema=True)


def results() -> dict[str, Array]:
    arrays = {}
    for name, strategy in {"stock": stock_strategy(), "none": tf.distribute.get_strategy()}.items():
        run = fit(strategy, optimizer=_adam)
        for i, array in enumerate([np.array(run.losses), *run.model.get_weights()]):
            arrays[f"{name}/{i}"] = array
    return arrays


def train(path: str) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    arrays = results()
    assert "tf_gc" not in sys.modules
    np.savez(path, **arrays)


def load(folder: str) -> None:
    directory = Path(folder)
    x = np.load(directory / "x.npy")
    with_weights = mlp()
    with_weights.load_weights(directory / "model.weights.h5")
    exported = tf.saved_model.load(directory / "exported")
    predictions = {
        "keras": keras.models.load_model(directory / "model.keras")(x),
        "weights": with_weights(x),
        "exported": exported.serve(x),
    }
    assert "tf_gc" not in sys.modules
    np.savez(directory / "loaded.npz", **{k: v.numpy() for k, v in predictions.items()})
