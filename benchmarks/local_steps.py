"""Local steps: what training loses if replicas send nothing for H steps, against two controls.

Four replicas start with the same weights. Each makes H steps of its own optimizer on its part of
the batches, and then all send what has changed in its weights, in the default's three bits with
residuals, and go on from the sum: of the mean change ("plain"), or of an outer Nesterov step with
it (DiLoCo, Douillard et al. 2023). The controls send as many bytes: gradients that are accumulated
over H steps, and one replica alone that makes the same outer steps and sends nothing. Cells,
learning rates and seeds are those of quality.py. Writes results/local_steps.json.

    python benchmarks/local_steps.py
"""

import argparse
import dataclasses
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import quality
import report
import tensorflow as tf
from quality_cells import CELLS, OPTIMIZERS, Cell
from quality_tasks import TASKS

from tf_gc import ops

REPLICAS = 4
CODEC = "three_bit"


@dataclasses.dataclass(frozen=True)
class Way:
    """How weights get together.

    Attributes:
      name: for the table.
      steps: H, local steps between two exchanges.
      rate: of the outer step.
      momentum: of the outer step, Nesterov's.
      replicas: how many there are.
      accumulates: whether gradients are accumulated instead of steps being made.
    """

    name: str
    steps: int
    rate: float = 1.0
    momentum: float = 0.0
    replicas: int = REPLICAS
    accumulates: bool = False


WAYS = [
    Way("synchronous", 1, accumulates=True),
    *(
        way
        for steps in (4, 8, 16)
        for way in (
            Way(f"plain, {steps}", steps),
            Way(f"Nesterov 0.9, {steps}", steps, 0.7, 0.9),
            Way(f"Nesterov 0.6, {steps}", steps, 0.7, 0.6),
            Way(f"rate 0.7, {steps}", steps, 0.7, 0.0),
            Way(f"accumulated, {steps}", steps, accumulates=True),
            Way(f"one replica, {steps}", steps, 0.7, 0.9, replicas=1),
        )
    ),
]


class Replica:
    """A model with an optimizer of its own."""

    def __init__(self, cell: Cell, rate: float, steps: int, share: int) -> None:
        self.task = TASKS[cell.task]
        make, _ = OPTIMIZERS[cell.optimizer]
        self.model = self.task.make_model()
        self.optimizer = make(rate, steps)
        self.variables = self.model.trainable_variables
        self.optimizer.build(self.variables)
        self.initial = [variable.numpy() for variable in self.optimizer.variables]

        def gradients(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = self.task.loss(y, self.model(x, training=True)) / share
            return [tf.convert_to_tensor(g) for g in tape.gradient(loss, self.variables)]

        self.gradients = tf.function(gradients, reduce_retracing=True)
        self.apply = tf.function(
            lambda grads: self.optimizer.apply_gradients(zip(grads, self.variables, strict=True))
        )

    def reset(self, weights: Sequence[Any]) -> None:
        self.model.set_weights(weights)
        quality.assign(self.optimizer.variables, self.initial)

    def weights(self) -> list[tf.Tensor]:
        return [tf.convert_to_tensor(variable) for variable in self.variables]


def summed(changes: Sequence[Sequence[tf.Tensor]], residuals: Any) -> list[tf.Tensor]:
    """Returns what arrives of the changes of all replicas, as by `tf_gc.Quantized()`."""
    totals = []
    for i, parts in enumerate(zip(*changes, strict=True)):
        if parts[0].shape.num_elements() < 2048 or residuals is None:
            totals.append(tf.add_n(parts))
            continue
        messages = [
            ops.encode([part], [residual[i]], CODEC)
            for part, residual in zip(parts, residuals, strict=True)
        ]
        totals += ops.decode(messages, [parts[0]], CODEC)
    return totals


def train(cell: Cell, way: Way, replicas: Sequence[Replica], seed: int) -> float:
    """Returns the quality at the end, of the weights that all have in common."""
    task = TASKS[cell.task]
    (x, y), (test_x, test_y) = task.load()
    keras.utils.set_random_seed(seed)
    start = task.make_model().get_weights()
    for replica in replicas:
        replica.reset(start)
    common = replicas[0].weights()
    velocity = [tf.zeros_like(value) for value in common]
    residuals = None
    if len(replicas) > 1:
        residuals = [[tf.Variable(tf.zeros_like(value)) for value in common] for _ in replicas]
    sums: Any = None
    random = np.random.default_rng(seed)
    done, per_epoch = 0, len(x) // task.batch_size
    total = per_epoch * task.epochs
    for _ in range(task.epochs):
        order = random.permutation(len(x))[: per_epoch * task.batch_size]
        for chosen in order.reshape(per_epoch, len(replicas), -1):
            done += 1
            grads = [r.gradients(x[i], y[i]) for r, i in zip(replicas, chosen, strict=True)]
            meets = done % way.steps == 0 or done == total
            if way.accumulates:
                sums = grads if sums is None else [
                    [a + b for a, b in zip(*pair, strict=True)]
                    for pair in zip(sums, grads, strict=True)
                ]  # fmt: skip
                if meets:
                    arrived = summed(sums, residuals)
                    count = way.steps if way.steps > 1 else 1
                    for replica in replicas:
                        replica.apply([each / count for each in arrived])
                    sums = None
                continue
            for replica, mine in zip(replicas, grads, strict=True):
                replica.apply(mine)
            if meets:
                changes = [
                    [(a - b) / len(replicas) for a, b in zip(common, r.weights(), strict=True)]
                    for r in replicas
                ]
                arrived = summed(changes, residuals)
                velocity = [way.momentum * v + c for v, c in zip(velocity, arrived, strict=True)]
                step = [c + way.momentum * v for c, v in zip(arrived, velocity, strict=True)]
                common = [w - way.rate * s for w, s in zip(common, step, strict=True)]
                for replica in replicas:
                    quality.assign(replica.variables, common)
    model = replicas[0].model
    at_a_time = task.test_batch or len(test_x)
    values = [
        float(task.metric.of(test_y[i : i + at_a_time], model(test_x[i : i + at_a_time])))
        for i in range(0, len(test_x), at_a_time)
    ]
    return float(task.metric.value(float(np.mean(values))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", nargs="+", default=[""], help="beginnings of names; all")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--name", default="local_steps", help="of the result")
    options = parser.parse_args()
    quality.set_devices()
    rates = quality.best_rates(report.RESULTS / "quality_rates.jsonl")
    rows = []
    chosen = [c for c in CELLS if not c.set_aside and c.name.startswith(tuple(options.cells))]
    for cell in chosen:
        task = TASKS[cell.task]
        steps = len(task.load()[0][0]) // task.batch_size * task.epochs
        base: list[float] = []
        made: dict[tuple[int, bool], list[Replica]] = {}
        for way in WAYS:
            kind = (way.replicas, way.accumulates)
            # Gradients of replicas add up to that of the mean; a replica alone takes its own mean.
            share = REPLICAS if way.accumulates else 1
            if kind not in made:
                made[kind] = [
                    Replica(cell, rates[cell.name], steps, share) for _ in range(way.replicas)
                ]
            start = time.perf_counter()
            found = [train(cell, way, made[kind], seed) for seed in range(1, options.seeds + 1)]
            base = base or found
            worse = [task.metric.worse(a, b) for a, b in zip(found, base, strict=True)]
            bars = statistics.mean(worse) / task.metric.bar
            rows.append({"cell": cell.name, "way": way.name, "final": found, "bars": bars})
            print(
                f"{cell.name}, {way.name}: {statistics.mean(found):.5g}, {bars:+.2f} bars "
                f"({time.perf_counter() - start:.0f} s)",
                flush=True,
            )
    report.write(options.name, {"seeds": options.seeds, "runs": rows})
    for way in WAYS[1:]:
        mine = [row["bars"] for row in rows if row["way"] == way.name]
        print(
            f"{way.name}: {sum(each <= 1 for each in mine)} of {len(mine)} within the bar, "
            f"median {statistics.median(mine):+.1f} bars"
        )


if __name__ == "__main__":
    main()
