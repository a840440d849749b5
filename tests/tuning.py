"""Datasets that TensorFlow does not tune, and epochs for which Keras makes one iterator."""

from typing import Any

import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import trainer
from tensorflow.python.data.ops import dataset_ops


def turn_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no iterator have a tuning thread, and no epoch a second iterator, from now on."""
    _turn_off_tuning(monkeypatch)
    _turn_off_spare_iterators(monkeypatch)


def _turn_off_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """When TensorFlow (2.21) destroys an iterator that is not at its end, it may wait for its
    tuning thread, for up to a minute; Keras leaves those over validation data so. Short epochs take
    half as long again with tuning.
    """
    stock = dataset_ops.DatasetV2._apply_debug_options

    def without_tuning(self: tf.data.Dataset) -> tf.data.Dataset:
        options = tf.data.Options()
        options.autotune.enabled = False
        # Without any rewrite the stock strategies' iterators crash (`tf_gc.strategies.datasets`).
        options.experimental_optimization.noop_elimination = True
        return stock(self).with_options(options)

    monkeypatch.setattr(dataset_ops.DatasetV2, "_apply_debug_options", without_tuning)


def _turn_off_spare_iterators(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of an epoch Keras (3.15) makes an iterator, and unless it was told how many steps
    an epoch has, the next epoch makes its own. To make one takes longer than a short epoch's steps.
    """
    stock = trainer.TFEpochIterator._get_iterator

    def but_no_spare_one(self: Any) -> Any:
        in_use = self._current_iterator is not None  # it is not where an epoch ended early
        at_end = in_use and self._num_batches and self._steps_seen >= self._num_batches
        return () if at_end and self.steps_per_epoch is None else stock(self)

    monkeypatch.setattr(trainer.TFEpochIterator, "_get_iterator", but_no_spare_one)
