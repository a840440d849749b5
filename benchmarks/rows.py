"""Rows of embeddings: how long the ops take, what is sent, how well lengths are guessed.

Times `encode_rows` and `decode_rows` (of two messages) for batches whose rows follow Zipf's law,
against merging alone by `tf.unique` and `tf.math.unsorted_segment_sum`. Then makes steps of
several workers with new rows in each, and counts what a worker sends, guesses of the length
included, against values and indices as the stock strategies gather them. Writes results/rows.json.

    python benchmarks/rows.py
"""

import argparse
import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import report
import tensorflow as tf

from tf_gc import ops
from tf_gc.reducers.rows import enough_for_most

# So many calls are timed as one: a call of a function takes as long as the shortest ops.
CALLS = 10


@dataclasses.dataclass(frozen=True)
class Case:
    """A table, and how many rows a batch looks up.

    Attributes:
      name: for the table of results.
      rows: of the table.
      columns: of the table.
      lookups: in the batch of one worker.
    """

    name: str
    rows: int
    columns: int
    lookups: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def stock_bytes(self) -> int:
        """Of float32 values and int32 indices."""
        return self.lookups * (4 * self.columns + 4)

    def indices(self, seed: int = 0) -> Iterator[np.ndarray]:
        """Yields the rows of batches; row k is 1 / (k + 1) times as frequent as row 0."""
        shares = np.cumsum(1 / np.arange(1, self.rows + 1))
        rng = np.random.default_rng(seed)
        while True:
            yield np.searchsorted(shares / shares[-1], rng.random(self.lookups))


CASES = [
    Case("words", 10_000, 200, 700),
    Case("recommender", 1_000_000, 64, 4_096),
    Case("large batch", 1_000_000, 64, 8_192),
    Case("narrow", 1_000_000, 16, 8_192),
]


def repeated(function: Callable[[], tf.Tensor]) -> Callable[[], Any]:
    """Returns a function that calls another one several times, one call after the other."""

    @tf.function
    def run() -> list[tf.Tensor]:
        done: list[tf.Tensor] = []
        for _ in range(CALLS):
            with tf.control_dependencies(done[-1:]):
                done.append(function())
        return done

    return run


def milliseconds(case: Case, codec: str, layers: int, rounds: int) -> dict[str, float]:
    """Returns the medians of each op's time."""
    values = tf.constant(
        np.random.default_rng(1).normal(size=(case.lookups, case.columns)), tf.float32
    )
    indices = tf.constant(next(case.indices()), tf.int64)
    gradient = tf.IndexedSlices(values, indices)
    residuals = [] if layers == 2 else [tf.Variable(tf.zeros(case.shape))]

    def encode() -> tf.Tensor:
        return ops.encode_rows([gradient], residuals, [case.shape], codec, layers)

    message = encode()

    def decode() -> tf.Tensor:
        return ops.decode_rows([message] * 2, [case.shape], tf.float32, codec, layers)[0].values

    def merge() -> tf.Tensor:
        unique, position = tf.unique(indices, tf.int64)
        return tf.math.unsorted_segment_sum(values, position, tf.size(unique))

    functions = {"encode": encode, "decode": decode, "tf.unique": merge}
    runs = {name: repeated(function) for name, function in functions.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            run()
            seconds[name].append((time.perf_counter() - start) / CALLS)
    return {name: 1e3 * statistics.median(times) for name, times in seconds.items()}


def lengths(case: Case, workers: int, steps: int) -> dict[str, float]:
    """Returns what a worker sends on average, and in how many steps the guess is too small."""
    batches = case.indices(seed=2)
    values = tf.zeros((case.lookups, case.columns))
    guess, second, sent, needed = tf.constant(0, tf.int64), 0, 0, 0
    for step in range(steps):
        own = [
            int(
                ops.encode_rows(
                    [tf.IndexedSlices(values, tf.constant(indices, tf.int64))], [], [case.shape]
                ).shape[1]
            )
            for indices in itertools.islice(batches, workers)
        ]
        longest = max(own)
        if step > 0:
            second += longest > int(guess)
            sent += 8 * (1 + max(longest, int(guess)))
            needed += 8 * own[0]
        guess = enough_for_most(tf.constant(longest, tf.int64), guess)
    others = workers - 1
    return {
        "sent_bytes": others * sent / (steps - 1),
        "message_bytes": needed / (steps - 1),
        "stock_bytes": others * case.stock_bytes,
        "second_collective": second / (steps - 1),
        "more_than_needed": sent / needed - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    result: dict[str, Any] = {"options": vars(options), "ops": [], "lengths": []}
    print(f"{'ms on one thread':<30}{'encode':>10}{'decode 2':>10}{'tf.unique':>11}")
    for case in CASES:
        for codec, layers in (("three_bit", 1), ("three_bit", 2), ("one_bit", 1)):
            times = milliseconds(case, codec, layers, options.rounds)
            result["ops"].append(
                {**dataclasses.asdict(case), "codec": codec, "layers": layers, "ms": times}
            )
            name = f"{case.name}, {codec}" + (", 2 layers" if layers == 2 else "")
            print(f"{name:<30}" + "".join(f"{value:>10.3f}" for value in times.values()))
    print(f"\n{'a worker sends':<22}{'kB':>8}{'stock kB':>10}{'ratio':>8}{'second':>9}{'more':>8}")
    for case, workers in itertools.product(CASES, (2, 8)):
        found = lengths(case, workers, options.steps)
        result["lengths"].append({**dataclasses.asdict(case), "workers": workers, **found})
        print(
            f"{f'{case.name}, {workers} workers':<22}{found['sent_bytes'] / 1e3:>8.1f}"
            f"{found['stock_bytes'] / 1e3:>10.1f}"
            f"{found['stock_bytes'] / found['sent_bytes']:>8.1f}"
            f"{found['second_collective']:>9.1%}{found['more_than_needed']:>8.1%}"
        )
    print(f"written: {report.write('rows', result)}")


if __name__ == "__main__":
    main()
