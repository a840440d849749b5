"""How a coordinator trains models of Keras in the tests of parameter servers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tests.multiworker import servers


def train_alike(steps: int) -> list[list[bytes]]:
    """Trains the same model under the stock strategy and without compression, with one worker."""
    resolver = servers.in_this_process(1)
    return [
        _train(make(resolver), steps, scaled=True)[1]
        for make in (
            tf.distribute.ParameterServerStrategy,
            lambda resolver: tf_gc.CompressedParameterServerStrategy(
                resolver, compression_params={"type": "none"}
            ),
        )
    ]


def _train(
    strategy: Any, steps: int, scaled: bool = False, **arguments: Any
) -> tuple[Any, list[bytes]]:
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                keras.layers.Embedding(500, 48),
                keras.layers.Flatten(),
                keras.layers.Dense(40, activation="relu"),
                keras.layers.Dense(5),
            ]
        )
        optimizer = keras.optimizers.Adam(0.01, **arguments)
        if scaled:  # its step runs the replica once more inside of the first run
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=64.0)
        optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(autograph=False)
    def step(words: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        def replica(words: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = loss_fn(labels, model(words, training=True))
                scaled_loss = optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled_loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.run(replica, args=(words, labels))

    words = np.random.default_rng(2).integers(0, 500, (16, 6)).astype(np.int32)
    labels = words[:, 0] % 5
    losses = [coordinator.schedule(step, args=(words, labels)) for _ in range(steps)]
    coordinator.join()
    values = [loss.fetch() for loss in losses]
    graph = step.get_concrete_function(words, labels).graph
    facts = {
        "losses": values,
        "iterations": int(optimizer.iterations.numpy()),
        "ops": [op.type for op in graph.get_operations()],
        "schedule": str(strategy.schedule) if hasattr(strategy, "schedule") else "",
        "servers": [kernel.value.device for kernel in model.variables if len(kernel.shape) > 1],
    }
    return facts, servers.bits([*model.variables, *optimizer.variables])


def keras_models(workers: int, steps: int) -> list[dict[str, Any]]:
    """Trains a model with an embedding in several ways, and says how it went."""
    resolver = servers.in_this_process(workers)
    table = tf_gc.Quantized(sparse=True)
    return [
        _train(
            tf_gc.CompressedParameterServerStrategy(resolver, compression_params=params, pull=pull),
            steps,
            **arguments,
        )[0]
        for params, pull, arguments in (
            (table, "full", {}),
            (table, "bfloat16", {}),
            (table, "delta", {"global_clipnorm": 1.0}),
            (
                tf_gc.ByVariable({"embeddings": table}, tf_gc.Cast("bfloat16")),
                "delta",
                {"scaled": True},
            ),
        )
    ]
