"""Training on two GPUs, or two halves of one; test_strategy.py runs this in a process of its own.

Devices are fixed when TensorFlow starts, and other tests have theirs.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import tf_gc
from tests.distribute.helpers import cpus, reducer, variables_of
from tests.keras import compressed, stock

REPLICAS = 2
MEGABYTES = 2048  # of a part of a GPU
SHAPES = [(7, 100), (1,), (129,), (300, 1000), (128,)]
STEPS = 4


def gpus() -> list[str]:
    return [f"GPU:{i}" for i in range(REPLICAS)]


def configure() -> None:
    """Makes REPLICAS devices of each kind."""
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < REPLICAS:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=MEGABYTES)
        tf.config.set_logical_device_configuration(physical[0], [part] * REPLICAS)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * REPLICAS,
    )


def gradients(dtype: tf.DType, step: int) -> list[np.ndarray]:
    """[replicas, ...] for each shape; in one step some elements are not finite."""
    random = np.random.default_rng(step)
    values = [random.normal(scale=0.1, size=(REPLICAS, *shape)) for shape in SHAPES]
    if step == 1:
        values[0][1, 3, 5] = np.nan
        values[3][0, 200, 7] = np.inf
    return [value.astype(dtype.as_numpy_dtype) for value in values]


def sums() -> None:
    """Sums, residuals and their sums over replicas are the CPU's bits, for every codec and plan."""
    for params in (tf_gc.TwoBit, tf_gc.OneBit):
        for threshold in ("auto", 0.1):
            for plan in ("all_gather", "scatter_gather"):
                for dtype in (tf.float32, tf.float16, tf.bfloat16):
                    print(params.__name__, threshold, plan, dtype.name, flush=True)
                    same_sums(params(threshold, warm_up=False, bypass_size=0, plan=plan), dtype)


def same_sums(params: tf_gc.params.CompressionParams, dtype: tf.DType) -> None:
    results = []
    for devices in (gpus(), cpus(REPLICAS)):
        strategy = tf_gc.CompressedMirroredStrategy(devices, params)
        variables = variables_of(strategy, *SHAPES)
        run = reducer(strategy, variables)
        found: list[np.ndarray] = []
        for step in range(STEPS):
            for of_replica in run(gradients(dtype, step)):
                found += of_replica
            found += [strategy.compression_state.total(variable) for variable in variables]
        assert strategy.traffic is not None
        assert strategy.traffic.compressed_tensors == len(SHAPES)
        results.append(found)
    for mine, theirs in zip(*results, strict=True):
        stock.assert_same_bits(mine, theirs)


def fit() -> None:
    """`fit` trains, compressed, and replicas agree."""
    strategy = tf_gc.CompressedMirroredStrategy(gpus(), compressed.AUTO)
    run = stock.fit(strategy, epochs=5)
    assert strategy.traffic is not None
    assert strategy.traffic.compressed_tensors == len(run.model.trainable_variables)
    compressed.assert_replicas_agree(strategy, run.model.trainable_variables)
    assert run.losses[-1] < 0.9 * run.losses[0]
    for residual in strategy.compression_state.variables:
        assert all("GPU" in component.device for component in residual.values)


if __name__ == "__main__":
    configure()
    {"sums": sums, "fit": fit}[sys.argv[1]]()
