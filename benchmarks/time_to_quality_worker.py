"""A worker process of benchmarks/time_to_quality.py: trains one of quality.py's tasks."""

import os
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import network_requests
import network_worker
import numpy as np
import tensorflow as tf
from quality_tasks import TASKS, cross_entropy

TESTED = 2000  # samples of the test data, the first ones, if there are as many
AT_ONCE = 250


def main() -> None:
    worker = network_requests.Worker()
    options = worker.task
    tf.config.threading.set_intra_op_parallelism_threads(options["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(options["threads"])
    strategy = network_worker.make_strategy(options)
    replicas = options["workers"]
    resolver = getattr(strategy, "cluster_resolver", None)
    rank = resolver.task_id if resolver else 0

    task = TASKS[options["model"]]
    keras.utils.set_random_seed(options["seed"])
    with strategy.scope():
        model = task.make_model()
        optimizer = keras.optimizers.Adam(options["rate"])
        optimizer.build(model.trainable_variables)
    (x, y), tests = task.load()
    test_x, test_y = (part[:TESTED] for part in tests)

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The rank's part of each batch, in the same order on all workers."""
        random = np.random.default_rng(options["seed"])
        while True:
            order = random.permutation(len(x))[: len(x) // task.batch_size * task.batch_size]
            for chosen in order.reshape(-1, replicas, task.batch_size // replicas):
                yield x[chosen[rank]], y[chosen[rank]]

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            # Gradients are summed over replicas: they add up to the gradient of the mean loss.
            loss = cross_entropy(y, model(x, training=True)) / replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor) -> None:
        strategy.run(replica_step, (x, y))

    @tf.function
    def test_loss(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return cross_entropy(y, model(x, training=False))

    data = batches()

    def step() -> None:
        train(*map(tf.constant, next(data)))

    def state() -> dict[str, float]:
        # Statistics of layers are means over the workers, in which all take part.
        if rank and not model.non_trainable_variables:
            return {}
        parts = [
            float(test_loss(test_x[i : i + AT_ONCE], test_y[i : i + AT_ONCE]))
            for i in range(0, len(test_x) // AT_ONCE * AT_ONCE, AT_ONCE)
        ]
        compression = getattr(strategy, "compression_state", None)
        return {
            "test_loss": float(np.mean(parts)),
            "warm_up_steps": compression.warm_up_steps if compression else 0,
        }

    def sent_bytes() -> int | None:
        traffic = getattr(strategy, "traffic", None)
        return traffic.sent_bytes if traffic else None

    step()
    worker.serve(step, {"parameters": model.count_params()}, sent_bytes, state)


if __name__ == "__main__":
    main()
