"""What workers do with gradients that are not finite."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tests.multiworker.failure_scenarios import worker_index


class Steps(keras.callbacks.Callback):
    """Counts batches."""

    count = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1


def terminate_on_nan(
    all_params: list[Any], worker: int, step: int
) -> list[tuple[int, np.ndarray, bool]]:
    """Trains with data of one worker that is infinite in one step.

    Returns, for each of the parameters, the steps until it stopped, the kernel and whether all
    residuals are finite.
    """
    x = np.random.default_rng(worker_index()).normal(size=(8, 4, 32)).astype(np.float32)
    if worker_index() == worker:
        x[step] = np.inf
    results = []
    for params in all_params:
        strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        batches = tf.data.Dataset.from_tensor_slices((x, np.ones((8, 4, 16), np.float32)))
        batches = batches.unbatch().batch(4 * strategy.num_replicas_in_sync).with_options(options)
        with strategy.scope():
            model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(16)])
            model.compile("sgd", "mse")
        steps = Steps()
        callbacks = [keras.callbacks.TerminateOnNaN(), steps]
        model.fit(batches.repeat(), steps_per_epoch=8, verbose=0, callbacks=callbacks)
        left = [residual.numpy() for residual in strategy.compression_state.variables]
        kernel = model.layers[0].get_weights()[0]
        results.append((steps.count, kernel, all(np.isfinite(r).all() for r in left)))
    return results
