"""How many bits an element takes in messages of real training: packed, by columns, and by zstd.

Trains models with compressed gradients, takes the messages of one replica from time to time, and
counts their bits, scales included: packed, by columns, and by zstd. The models are those of
network.py, on synthetic data, and the cells of quality.py, on real data. Writes
results/wire_bits.json and .png. zstd's row needs the package `zstandard`; without it, that row is
missing.

    python benchmarks/wire_bits.py
    python benchmarks/wire_bits.py --only mlp "GRU, Nadam" --bits 3
"""

import argparse
import dataclasses
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import models
import numpy as np
import report
import tensorflow as tf
from quality import best_rates
from quality_cells import CELLS, OPTIMIZERS
from quality_tasks import TASKS

from tf_gc import ops

try:
    import zstandard
except ImportError:
    zstandard = None

matplotlib.use("Agg")
from matplotlib import pyplot as plt

CODECS = {2: "two_bit", 3: "three_bit", 4: "four_bit"}
SMALLEST = 2048  # elements of a tensor that is compressed
WARM_UP = 20  # steps in full precision
SAMPLES = 20
SYNTHETIC_STEPS, SYNTHETIC_BATCHES = 100, 8
SHOWN = (
    "mlp",
    "vgg",
    "lstm",
    "resnet",
    "CNN, SGD",
    "GRU, Nadam",
    "LSTM, Adam",
    "autoencoder, Muon",
)


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained, and on what.

    Attributes:
      model: the model.
      optimizer: its optimizer.
      loss: labels and outputs -> mean.
      replicas: how many share a batch.
      batches: pairs of inputs and labels.
      steps: how many batches there are.
    """

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    replicas: int
    batches: Iterator[tuple[np.ndarray, np.ndarray]]
    steps: int


def synthetic(name: str) -> Training:
    """Returns a model of network.py."""
    tasks = [models.MODELS[name](64) for _ in range(SYNTHETIC_BATCHES)]
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Training(
        tasks[0].model,
        keras.optimizers.Adam() if name == "lstm" else keras.optimizers.SGD(0.01, momentum=0.9),
        cross_entropy,
        2,
        ((task.x, task.y) for _ in range(SYNTHETIC_STEPS) for task in tasks),
        SYNTHETIC_STEPS,
    )


def real(name: str, rates: dict[str, float]) -> Training:
    """Returns a cell of quality.py."""
    (cell,) = (cell for cell in CELLS if cell.name == name)
    task = TASKS[cell.task]
    (x, y), _ = task.load()
    steps_per_epoch = len(x) // task.batch_size
    steps = steps_per_epoch * task.epochs
    make, _ = OPTIMIZERS[cell.optimizer]

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        random = np.random.default_rng(1)
        for _ in range(task.epochs):
            order = random.permutation(len(x))
            for i in range(steps_per_epoch):
                some = order[i * task.batch_size : (i + 1) * task.batch_size]
                yield x[some], y[some]

    optimizer = make(rates[name], steps)
    return Training(task.make_model(), optimizer, task.loss, cell.replicas, batches(), steps)


class Replicas:
    """Replicas that train one model with compressed gradients, one after the other."""

    def __init__(self, training: Training, codec: str) -> None:
        self.training, self.codec = training, codec
        self.variables = [variable.value for variable in training.model.trainable_variables]
        self.large = [
            i for i, variable in enumerate(self.variables) if np.prod(variable.shape) >= SMALLEST
        ]
        self.elements = sum(int(np.prod(self.variables[i].shape)) for i in self.large)
        self.periods = ops.periods(self.variables[i].shape for i in self.large)
        self.residuals = [
            [tf.Variable(tf.zeros(self.variables[i].shape)) for i in self.large]
            for _ in range(training.replicas)
        ]
        training.optimizer.build(training.model.trainable_variables)
        self.full = tf.function(self._full)
        self.compressed = tf.function(self._compressed)

    def _gradients(self, x: tf.Tensor, y: tf.Tensor) -> list[list[tf.Tensor]]:
        """Returns the gradients of each replica's part of the batch."""
        replicas = self.training.replicas
        gradients = []
        for part_x, part_y in zip(tf.split(x, replicas), tf.split(y, replicas), strict=True):
            with tf.GradientTape() as tape:
                outputs = self.training.model(part_x, training=True)
                loss = self.training.loss(part_y, outputs) / replicas
            gradients.append(
                [tf.convert_to_tensor(each) for each in tape.gradient(loss, self.variables)]
            )
        return gradients

    def _apply(self, sums: list[tf.Tensor]) -> None:
        pairs = zip(sums, self.training.model.trainable_variables, strict=True)
        self.training.optimizer.apply_gradients(pairs)

    def _full(self, x: tf.Tensor, y: tf.Tensor) -> None:
        self._apply([tf.add_n(each) for each in zip(*self._gradients(x, y), strict=True)])

    def _compressed(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Makes a step and returns the first replica's message."""
        gradients = self._gradients(x, y)
        sums = [tf.add_n(each) for each in zip(*gradients, strict=True)]
        messages = [
            ops.encode([mine[i] for i in self.large], residuals, self.codec)
            for mine, residuals in zip(gradients, self.residuals, strict=True)
        ]
        decoded = ops.decode(messages, [sums[i] for i in self.large], self.codec)
        for i, total in zip(self.large, decoded, strict=True):
            sums[i] = total
        self._apply(sums)
        return messages[0]


def count_bits(
    message: tf.Tensor, codec: str, elements: int, periods: Sequence[int]
) -> dict[str, float]:
    """Returns the bits of an element in a message, int64 [1, words], by the wire."""
    _, lengths = ops.pack(message, codec, periods=periods)
    bits = {
        "packed": 64 * message.shape[1] / elements,
        "columns": 64 * int(lengths[0]) / elements,
    }
    if zstandard is not None:
        packed = zstandard.ZstdCompressor(level=1).compress(message.numpy().tobytes())
        bits["zstd"] = 8 * len(packed) / elements
    return bits


def measure(training: Training, codec: str, save: Path | None = None) -> dict[str, list[float]]:
    """Trains, and returns the steps of the samples and, for each wire, the bits of an element.

    Args:
      training: what to train.
      codec: what compresses gradients.
      save: where the last of the samples goes, a message of int64 [1, words].
    """
    replicas = Replicas(training, codec)
    between = max(1, (training.steps - WARM_UP) // SAMPLES)
    rows: dict[str, list[float]] = {"step": []}
    for step, (x, y) in zip(range(training.steps), training.batches, strict=False):
        batch = tf.constant(x), tf.constant(y)
        if step < WARM_UP:
            replicas.full(*batch)
            continue
        message = replicas.compressed(*batch)
        if (step - WARM_UP) % between == between - 1:
            rows["step"].append(step)
            counted = count_bits(message, codec, replicas.elements, replicas.periods)
            for wire, bits in counted.items():
                rows.setdefault(wire, []).append(round(bits, 4))
            if save is not None:
                np.save(save, message.numpy())
    return rows


def plot(results: dict[str, dict[str, dict[str, list[float]]]], path: Path) -> None:
    """Draws the bits over the steps, a panel for each model."""
    shown = [name for name in SHOWN if name in results]
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.2 * columns, 2.7 * rows), squeeze=False, sharey=True
    )
    styles = {"packed": ":", "columns": "-", "zstd": "--"}
    for axis, name in zip(axes.flat, shown, strict=False):
        for color, (bits, by_wire) in enumerate(results[name].items()):
            for wire, style in styles.items():
                if wire in by_wire:
                    axis.plot(
                        by_wire["step"], by_wire[wire], style, color=f"C{color}",
                        label=f"{bits} bits, {wire}",
                    )  # fmt: skip
        axis.set_title(name, fontsize=9)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    for axis in axes[:, 0]:
        axis.set_ylabel("bits an element")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(handles) // 3, fontsize=8)
    figure.tight_layout(rect=(0, 0.14 if rows == 1 else 0.12, 1, 1))
    figure.savefig(path, dpi=110)


def mean(values: list[float]) -> float:
    return statistics.fmean(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [*[name for name in models.MODELS if name != "small"], *[cell.name for cell in CELLS]]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--bits", nargs="+", type=int, choices=CODECS, default=[2, 3, 4])
    parser.add_argument("--output", type=Path, default=report.RESULTS)
    parser.add_argument(
        "--messages",
        type=Path,
        metavar="DIR",
        help="also write the last message of each training there, for codec.py",
    )
    options = parser.parse_args()

    if options.messages is not None:
        options.messages.mkdir(parents=True, exist_ok=True)
    rates = best_rates(report.RESULTS / "quality_rates.jsonl")
    results: dict[str, Any] = {}
    for name in options.only:
        for bits in options.bits:
            keras.utils.set_random_seed(1)
            training = synthetic(name) if name in models.MODELS else real(name, rates)
            save = options.messages and options.messages / f"{name}_{bits}.npy"
            rows = measure(training, CODECS[bits], save)
            results.setdefault(name, {})[str(bits)] = rows
            means = ", ".join(
                f"{wire} {mean(values):.3f}" for wire, values in rows.items() if wire != "step"
            )
            print(f"{name}, {bits} bits: {means}", flush=True)
    cells = [name for name in results if name not in models.MODELS]
    averages = {
        bits: {
            wire: mean([mean(results[name][bits][wire]) for name in cells])
            for wire in results[cells[0]][bits]
            if wire != "step"
        }
        for bits in (map(str, options.bits) if cells else ())
    }
    for bits, by_wire in averages.items():
        print(f"mean over {len(cells)} cells, {bits} bits: {by_wire}")
    report.write("wire_bits", {"cells_mean": averages, "runs": results}, options.output)
    plot(results, options.output / "wire_bits.png")


if __name__ == "__main__":
    main()
