"""The strategies that are asked to keep the promises."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

import tf_gc
from tests.keras import stock

STOCK = "stock"
# Without compression the state of layers is left to the replicas, unless that is asked for.
OURS: dict[str, dict[str, Any]] = {
    "compressed": {},
    "none": {"compression_params": {"type": "none"}, "average_layer_state": True},
}
NAMES = (STOCK, *OURS)


@functools.cache
def of_one_host(name: str) -> tf.distribute.Strategy:
    """Returns a strategy of two devices, the same one each time."""
    if name == STOCK:
        return stock.stock_strategy(2)
    return tf_gc.CompressedMirroredStrategy(stock.devices(2), **OURS[name])


@functools.cache
def of_workers(name: str) -> tf.distribute.Strategy:
    """Returns a strategy of the workers that TF_CONFIG says."""
    # Where one worker fails, the others do before the test's limit; one that traces takes a while.
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=600.0)
    if name == STOCK:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    return tf_gc.CompressedMultiWorkerMirroredStrategy(communication_options=options, **OURS[name])
