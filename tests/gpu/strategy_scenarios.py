"""Training on two GPUs, or two halves of one; test_strategy.py runs this in a process of its own,
since devices are fixed when TensorFlow starts.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.bits import assert_same_bits
from tests.keras import compressed, stock
from tests.keras.compressed import assert_replicas_agree, total_residual
from tests.strategies.helpers import check_that_nothing_is_lost, cpus, normal, reducer, variables_of
from tf_gc.reducers.wire import WIRES

REPLICAS = 2
GPUS = ["GPU:0", "GPU:1"]
MEGABYTES = 2048  # of a part of a GPU
SHAPES = [(7, 100), (1,), (129,), (300, 1000), (128,)]
STEPS = 4
WORDS, LENGTH = 500, 8  # of the model with an Embedding
# What GPUs add up atomically is not the same twice.
enable_op_determinism = tf.config.experimental.enable_op_determinism


def configure(parts: int = REPLICAS) -> None:
    """Makes `parts` devices of each kind, of one GPU if there are fewer."""
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < parts or parts == 1:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=MEGABYTES)
        tf.config.set_logical_device_configuration(physical[0], [part] * parts)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * parts
    )


def gradients(dtype: tf.DType, step: int) -> list[np.ndarray]:
    """[replicas, ...] for each shape; in one step some elements are not finite."""
    values = normal(SHAPES, seed=step, scale=0.1)
    if step == 1:
        values[0][1, 3, 5] = np.nan
        values[3][0, 200, 7] = np.inf
    return [value.astype(dtype.as_numpy_dtype) for value in values]


def sums() -> None:
    """Sums, residuals and their sums over replicas are the CPU's bits, for every codec and plan."""
    cold: dict[str, Any] = {"warm_up": False, "bypass_size": 0}
    codecs: list[tuple[type[tf_gc.params.CompressionParams], Any]] = [
        *((tf_gc.TwoBit, "auto"), (tf_gc.TwoBit, 0.1), (tf_gc.OneBit, "auto")),
        *((tf_gc.OneBit, 0.1), (tf_gc.Quantized, 3), (tf_gc.Quantized, 4)),
    ]
    for params, argument in codecs:
        for plan in ("all_gather", "scatter_gather"):
            for dtype in (tf.float32, tf.float16, tf.bfloat16):
                if plan == "scatter_gather" and dtype == tf.float16:
                    continue  # tests/gpu/parity.cc has all of them
                print(params.__name__, argument, plan, dtype.name, flush=True)
                same_sums(params(argument, plan=plan, **cold), dtype)
    for name in ("bfloat16", "float16"):
        print("Cast", name, flush=True)
        # Here a NaN has the same bits as from the stock collectives.
        same_sums(tf_gc.Cast(name, bypass_size=0), tf.float32, finite=True)


def same_sums(
    params: tf_gc.params.CompressionParams, dtype: tf.DType, finite: bool = False
) -> None:
    results = []
    for devices in (GPUS, cpus(REPLICAS)):
        strategy = tf_gc.CompressedMirroredStrategy(devices, params)
        variables = variables_of(strategy, *SHAPES)
        run = reducer(strategy, variables)
        found: list[np.ndarray] = []
        for step in range(2, STEPS) if finite else range(STEPS):
            for of_replica in run(gradients(dtype, step)):
                found += of_replica
            totals = [strategy.compression_state.total(variable) for variable in variables]
            if isinstance(params, tf_gc.Cast):
                assert totals == [None] * len(SHAPES)
            else:
                found += totals
        assert strategy.traffic.compressed_tensors == len(SHAPES)
        results.append(found)
    for mine, theirs in zip(*results, strict=True):
        assert_same_bits(mine, theirs)


def rows() -> None:
    """Messages of rows, their sums and residuals are those of the NumPy reference, to the bit."""
    with tf.device("GPU:0"):
        assert pytest.main(["-q", "tests/custom_ops/test_rows.py"]) == 0


def nothing() -> None:
    """Without compression, training gives the stock strategy's bits."""
    enable_op_determinism()
    theirs = stock.fit(tf.distribute.MirroredStrategy(GPUS), epochs=3)
    ours = stock.fit(tf_gc.CompressedMirroredStrategy(GPUS, compressed.NONE), epochs=3)
    stock.assert_same_run(ours, theirs)


def defaults() -> None:
    """With no argument all GPUs train; an Embedding's gradients stay as under stock. `Auto` tries
    full precision and compression, and takes one.
    """
    enable_op_determinism()
    for params in (None, tf_gc.Auto()):
        strategy = tf_gc.CompressedMirroredStrategy(compression_params=params)
        assert strategy.num_replicas_in_sync == REPLICAS
        model = words_model(strategy)
        losses = fit_words(model, epochs=20)
        assert losses[-1] < 0.9 * losses[0], (losses, strategy.report())
        assert params is not None or strategy.traffic.compressed_tensors > 0
        assert_replicas_agree(strategy, model.trainable_variables)


def low_rank() -> None:
    """All that was given is sent or kept, and replicas agree to the bit."""
    strategy = tf_gc.CompressedMirroredStrategy(GPUS, tf_gc.LowRank(2, warm_up=False))
    shapes = [(128, 192), (400, 140), (7,)]
    variables = variables_of(strategy, *shapes)
    steps = [normal(shapes, seed=step) for step in range(5)]
    run = reducer(strategy, variables)
    check_that_nothing_is_lost(strategy, variables, run, steps, rtol=1e-5, atol=1e-4)
    left = [strategy.compression_state.total(variable) is not None for variable in variables]
    assert left == [True, True, False]


def checkpoint() -> None:
    """`fit` trains, compressed; residuals are saved on GPUs, and restored on GPUs and on CPUs."""
    saved = tf_gc.CompressedMirroredStrategy(GPUS, compressed.AUTO)
    run = stock.fit(saved, stock.named_mlp, epochs=5)
    assert saved.traffic.compressed_tensors == len(run.model.trainable_variables)
    assert_replicas_agree(saved, run.model.trainable_variables)
    assert run.losses[-1] < 0.9 * run.losses[0]
    for residual in saved.compression_state.variables:
        assert all("GPU" in component.device for component in residual.values)
    expected = [total_residual(saved, variable) for variable in run.model.trainable_variables]
    assert all((total != 0).any() for total in expected)
    with tempfile.TemporaryDirectory() as folder:
        written = tf.train.Checkpoint(model=run.model, compression=saved.compression_state)
        path = written.save(Path(folder, "checkpoint"))
        for devices in (GPUS, cpus(REPLICAS)):
            strategy = tf_gc.CompressedMirroredStrategy(devices, compressed.AUTO)
            model = stock.compiled(strategy, stock.named_mlp)
            state = tf.train.Checkpoint(model=model, compression=strategy.compression_state)
            state.restore(path)
            for variable, total in zip(model.trainable_variables, expected, strict=True):
                restored = total_residual(strategy, variable)
                np.testing.assert_allclose(restored, total, rtol=1e-6)
            model.fit(*stock.data(), batch_size=stock.BATCH, verbose=0)
            assert_replicas_agree(strategy, model.trainable_variables)


def worker() -> None:
    """One of several workers of TF_CONFIG that share a GPU: they train, and agree, on each wire."""
    enable_op_determinism()
    options = tf.distribute.experimental.CommunicationOptions(
        # NCCL refuses two replicas on one GPU.
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    for wire in WIRES:
        strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
            communication_options=options,
            compression_params=tf_gc.Quantized(
                wire=wire, warm_up=False, bypass_size=0, sparse=True
            ),
        )
        assert "GPU" in strategy.extended.worker_devices[0]
        model = words_model(strategy)
        losses = fit_words(model, epochs=5)
        assert losses[-1] < 0.9 * losses[0]
        assert strategy.traffic.compressed_tensors > 0
        assert {wire, "rows"} == {*strategy.traffic.wire.split(", ")}
        weights = b"".join(weight.tobytes() for weight in model.get_weights())
        print("weights:", hashlib.sha256(weights).hexdigest(), flush=True)


def words_model(strategy: tf.distribute.Strategy) -> keras.Model:
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential([keras.Input((LENGTH,), dtype="int32")])
        model.add(keras.layers.Embedding(WORDS, 64))
        model.add(keras.layers.Flatten())
        model.add(keras.layers.Dense(64, activation="relu"))
        model.add(keras.layers.Dense(2))
        model.compile("adam", loss=stock.cross_entropy())
    return model


def fit_words(model: keras.Model, epochs: int) -> list[float]:
    random = np.random.default_rng(1)
    x = random.integers(WORDS, size=(256, LENGTH))
    y = (x < WORDS // 2).sum(axis=1) > LENGTH // 2
    options = {"batch_size": 32, "epochs": epochs, "shuffle": False, "verbose": 0}
    return model.fit(x, y.astype("int32"), **options).history["loss"]


if __name__ == "__main__":
    configure(1 if sys.argv[1] == "worker" else REPLICAS)
    globals()[sys.argv[1]]()
