"""A worker process of benchmarks/network.py that runs TensorFlow; see network_requests.py."""

from collections.abc import Callable
from typing import Any

import keras
import models
import network_requests
import report
import tensorflow as tf

import tf_gc


def make_strategy(task: dict[str, Any]) -> tf.distribute.Strategy:
    if task["mode"] == "alone":
        return tf.distribute.get_strategy()
    name, _, megabytes = task["mode"].partition(":")
    if name == "stock":
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=round(float(megabytes or 0) * (1 << 20))
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    return tf_gc.CompressedMultiWorkerMirroredStrategy(
        compression_params=task["compression_params"]
    )


def build(
    strategy: tf.distribute.Strategy, name: str, batch: int
) -> tuple[Callable[[], None], keras.Model]:
    """Returns a function that runs one training step of a model, and the model."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        task = models.MODELS[name](batch)
        variables = task.model.trainable_variables
        optimizer = task.optimizer()
        optimizer.build(variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x, y = tf.nest.map_structure(tf.constant, task.x), tf.constant(task.y)

    def replica_step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(y, task.model(x, training=True))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    @tf.function
    def step() -> None:
        strategy.run(replica_step)

    return step, task.model


def main() -> None:
    imports = network_requests.spent()
    worker = network_requests.Worker()
    task = worker.task
    tf.config.threading.set_intra_op_parallelism_threads(task["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(task["threads"])
    strategy = make_strategy(task)
    step, model = build(strategy, task["model"], task["batch_size"])
    report.finish_warm_up(strategy, step)

    def traffic(which: str) -> int | None:
        now = getattr(strategy, "traffic", None)
        return getattr(now, which) if now else None

    worker.serve(
        step,
        {
            "parameters": model.count_params(),
            "stock_bytes": traffic("stock_bytes"),
            "imports": imports,
        },
        lambda: traffic("sent_bytes"),
    )


if __name__ == "__main__":
    main()
