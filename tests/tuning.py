"""Datasets that TensorFlow does not tune."""

import pytest
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops


def turn_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no iterator have a tuning thread, from now on.

    When TensorFlow (2.21) destroys an iterator that is not at its end, it may wait for that thread,
    for up to a minute; Keras leaves those over validation data so. Short epochs take half as long
    again with tuning.
    """
    stock = dataset_ops.DatasetV2._apply_debug_options

    def without_tuning(self: tf.data.Dataset) -> tf.data.Dataset:
        options = tf.data.Options()
        options.autotune.enabled = False
        return stock(self).with_options(options)

    monkeypatch.setattr(dataset_ops.DatasetV2, "_apply_debug_options", without_tuning)
