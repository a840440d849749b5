"""Iterators that are deleted while their threads read."""

from __future__ import annotations

import time
from typing import Any


def delete_iterators(kind: str, by_function: str) -> None:
    """Deletes iterators of a dataset without rewrites, as Keras has it for NumPy arrays.

    Under the stock strategies the first or second iterator ends the process by a signal.
    """
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    import tf_gc

    strategy: Any = {
        "mirrored": lambda: tf_gc.CompressedMirroredStrategy(["CPU:0", "CPU:1"]),
        "multi_worker": tf_gc.CompressedMultiWorkerMirroredStrategy,
        "stock": lambda: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    }[kind]()
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = tf.data.Dataset.range(10**10).batch(200_000).with_options(options)
    for _ in range(6):
        if by_function == "by_function":
            distributed = strategy.distribute_datasets_from_function(lambda context: dataset)
        else:
            distributed = strategy.experimental_distribute_dataset(dataset)
        iterator = iter(distributed)
        next(iterator)
        time.sleep(0.02)  # lets the iterator's thread read ahead
        del iterator
