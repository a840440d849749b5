"""How well asynchronous training with parameter servers ends, against that of the stock strategy.

Two workers and two servers in this process train without waiting for each other: an MLP on
scikit-learn's digits, an LSTM on words (both from quality_tasks.py) and a recommender on MovieLens
(ranking.py), with SGD, Adam and Adagrad. For each seed all variants start with the same weights and
see the same batches; which worker comes first is chance. Tables are compressed (`sparse=True`).
Prints means of what each seed ends with, relative to the stock strategy for perplexity and NDCG.
Writes results/parameter_server_quality.json.

    python benchmarks/parameter_server_quality.py
"""

import argparse
import itertools
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import ranking
import report
import tensorflow as tf
from local_jobs import local_workers
from quality_tasks import TASKS, Metric

import tf_gc
from tf_gc.ops import _loader

WORKERS, SERVERS = 2, 2
# Functions in one process wait for each other: with fewer threads for ever.
THREADS = 16

OPTIMIZERS = {
    "MLP": {
        "SGD": lambda: keras.optimizers.SGD(0.1),
        "Adam": lambda: keras.optimizers.Adam(0.001),
        "Adagrad": lambda: keras.optimizers.Adagrad(0.02),
    },
    "LSTM": {
        "SGD": lambda: keras.optimizers.SGD(1.0),
        "Adam": lambda: keras.optimizers.Adam(0.003),
        "Adagrad": lambda: keras.optimizers.Adagrad(0.05),
    },
    # Half of the rates of ranking.py: two workers add up what four replicas share there.
    "recommender": {
        "SGD": lambda: keras.optimizers.SGD(10.0),
        "Adagrad": lambda: keras.optimizers.Adagrad(0.05, initial_accumulator_value=1e-9),
        "Adam": lambda: keras.optimizers.Adam(0.001),
    },
}
VARIANTS: dict[str, dict[str, Any] | None] = {
    "stock": None,
    "push": {"compression_params": tf_gc.Quantized(sparse=True)},
    "push, delta": {"compression_params": tf_gc.Quantized(sparse=True), "pull": "delta"},
}


def start_cluster() -> tf.distribute.cluster_resolver.ClusterResolver:
    """Starts workers and servers in this process, which is their coordinator."""
    _loader.load()
    addresses = local_workers.local_addresses(WORKERS + SERVERS + 1)
    rest = iter(addresses)
    jobs = {"worker": WORKERS, "ps": SERVERS, "chief": 1}
    cluster = tf.train.ClusterSpec(
        {job: list(itertools.islice(rest, count)) for job, count in jobs.items()}
    )
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=THREADS)
    for job in ("worker", "ps"):
        for index in range(jobs[job]):
            server = tf.distribute.Server(cluster, job_name=job, task_index=index, config=config)
            _SERVERS.append(server)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )


_SERVERS: list[Any] = []


class Training:
    """Trains a model by one variant, from whatever seed."""

    def __init__(self, resolver: Any, variant: str, make: Any, make_optimizer: Any) -> None:
        arguments = VARIANTS[variant]
        if arguments is None:
            self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        else:
            self.strategy = tf_gc.CompressedParameterServerStrategy(resolver, **arguments)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            self.variables, self.loss = make()
            self.optimizer = make_optimizer()
            self.optimizer.build(self.variables)
        self.start = [keras.ops.convert_to_numpy(v) for v in self.optimizer.variables]

        @tf.function
        def step(*batch: tf.Tensor) -> None:
            def replica(*batch: tf.Tensor) -> None:
                with tf.GradientTape() as tape:
                    loss = self.loss(*batch)
                gradients = tape.gradient(loss, self.variables)
                self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))

            self.strategy.run(replica, args=batch)

        self.step = step

    def train(self, weights: list[np.ndarray], batches: Any) -> None:
        """Trains from these weights with these batches, from an iterable."""
        for variable, value in zip(self.variables, weights, strict=True):
            variable.assign(value)
        for variable, value in zip(self.optimizer.variables, self.start, strict=True):
            variable.assign(value)
        if isinstance(self.strategy, tf_gc.CompressedParameterServerStrategy):
            self.strategy.compression_state.reset()
        for batch in batches:
            self.coordinator.schedule(self.step, args=tuple(map(tf.constant, batch)))
        self.coordinator.join()


class OfTask:
    """Trains a task of quality_tasks.py; less is better."""

    def __init__(self, name: str) -> None:
        self.task = TASKS[name]
        (self.x, self.y), self.test = self.task.load()
        self.metric: Metric = self.task.metric

    def make(self) -> Any:
        self.model = self.task.make_model()
        return self.model.trainable_variables, lambda x, y: self.task.loss(y, self.model(x))

    def run(self, training: Training, seed: int) -> float:
        keras.utils.set_random_seed(seed)
        weights = [keras.ops.convert_to_numpy(v) for v in self.task.make_model().trainable_weights]
        rng = np.random.default_rng(seed)
        size = self.task.batch_size // WORKERS

        def batches() -> Any:
            for _ in range(self.task.epochs):
                order = rng.permutation(len(self.x))
                for first in range(0, len(order) - size + 1, size):
                    chosen = order[first : first + size]
                    yield self.x[chosen], self.y[chosen]

        training.train(weights, batches())
        x, y = self.test
        return self.metric.value(float(self.metric.of(y, self.model(x))))


class OfRanking:
    """Trains the recommender of ranking.py; more is better, so this is NDCG@20 below 1."""

    epochs, batch_size = 20, 512

    def __init__(self) -> None:
        self.train, self.test, users, films = ranking.load()
        self.shapes = ((users, ranking.COLUMNS), (films, ranking.COLUMNS))
        self.metric = Metric("1 - NDCG@20", lambda a, b: a, bar=0.015, relative=True)

    def make(self) -> Any:
        tables = [tf.Variable(tf.zeros(shape)) for shape in self.shapes]

        def loss(triples: tf.Tensor) -> tf.Tensor:
            user, liked, other = tf.unstack(triples, axis=1)
            difference = tf.gather(tables[1], liked) - tf.gather(tables[1], other)
            margin = tf.reduce_sum(tf.gather(tables[0], user) * difference, axis=1)
            return tf.reduce_mean(tf.nn.softplus(-margin))

        self.tables = tables
        return tables, loss

    def run(self, training: Training, seed: int) -> float:
        rng = np.random.default_rng(seed)
        weights = [rng.normal(scale=0.1, size=shape).astype(np.float32) for shape in self.shapes]

        def batches() -> Any:
            for _ in range(self.epochs):
                order = rng.permutation(len(self.train))
                for first in range(0, len(order) - self.batch_size + 1, self.batch_size):
                    pairs = self.train[order[first : first + self.batch_size]]
                    others = rng.integers(self.shapes[1][0], size=self.batch_size)
                    yield (np.column_stack([pairs, others]).astype(np.int32),)

        training.train(weights, batches())
        users, films = (table.numpy() for table in self.tables)
        return 1 - ranking.ndcg(users, films, self.train, self.test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--name", default="parameter_server_quality", help="of the result")
    options = parser.parse_args()
    resolver = start_cluster()
    found: dict[str, Any] = {}
    for name in options.tasks:
        task = OfRanking() if name == "recommender" else OfTask(name)
        for optimizer, make_optimizer in OPTIMIZERS[name].items():
            of_variants = found[f"{name}, {optimizer}"] = {"bar": task.metric.bar}
            for variant in VARIANTS:
                training = Training(resolver, variant, task.make, make_optimizer)
                values = [task.run(training, seed) for seed in range(options.seeds)]
                of_variants[variant] = values
                line = f"{name}, {optimizer}, {variant}: {task.metric.name} {np.mean(values):.4f}"
                if variant != "stock":
                    pairs = zip(values, of_variants["stock"], strict=True)
                    worse = np.array([task.metric.worse(*pair) for pair in pairs])
                    error = worse.std(ddof=1) / len(worse) ** 0.5
                    line += (
                        f", worse by {worse.mean():+.2%} ± {error:.2%} (bar {task.metric.bar:.1%})"
                    )
                print(line, flush=True)
            # It takes half an hour: what is done is not lost.
            path = report.write(options.name, {"seeds": options.seeds, "tasks": found})
    print(path)
    os._exit(0)  # the servers of this process would wait for ever


if __name__ == "__main__":
    main()
