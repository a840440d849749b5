"""Loads what test_saving saved, in a process of its own."""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tests.keras.stock import mlp


def main(folder: str) -> None:
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
