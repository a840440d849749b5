"""What it costs that steps record their times, are measured, and are written for TensorBoard.

Trains a model with `fit` on logical CPU devices, in alternation, and compares the time of a step,
and the processor time of a step, round by round: nothing recorded, as every strategy records, with
CompressionMonitor, and with a measurement of every step. Also measures single parts. Writes
results/monitoring.json.

    python benchmarks/monitoring.py
    python benchmarks/monitoring.py --layers 40 --width 64 --batch-size 64   # many small variables
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import report
import tensorflow as tf

import tf_gc
from tf_gc import ops
from tf_gc.observe.measurement import Measurement

INPUTS, CLASSES = 256, 10


class Nothing(Measurement):
    """Records nothing, and puts nothing into the step."""

    def note_step(self, *arguments: Any, **options: Any) -> tf.Tensor:
        return tf.constant(False)

    def measure_if(self, *arguments: Any) -> tf.Tensor:
        return tf.constant(False)

    def built(self, *arguments: Any) -> None:
        pass


class TimedMonitor(tf_gc.keras.CompressionMonitor):
    """Adds up the processor seconds of all that Keras calls while it trains."""

    seconds = 0.0

    def _timed(self, call: Callable[..., None], *arguments: Any) -> None:
        start = time.process_time()
        call(*arguments)
        self.seconds += time.process_time() - start

    def on_train_begin(self, logs: Any = None) -> None:
        self._timed(super().on_train_begin, logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._timed(super().on_epoch_begin, epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._timed(super().on_train_batch_begin, batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._timed(super().on_epoch_end, epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        self._timed(super().on_train_end, logs)


def trainer(
    options: argparse.Namespace, record: bool, every: int = 100, monitor: bool = False
) -> Callable[[], list[tuple[float, ...]]]:
    """Returns a function that trains an epoch.

    It gives the seconds and processor seconds of a step, and those processor seconds that the
    callback took.
    """
    keras.utils.set_random_seed(1)
    strategy = tf_gc.CompressedMirroredStrategy(
        [f"CPU:{i}" for i in range(options.replicas)], tf_gc.Quantized(warm_up=False)
    )
    if not record:
        all_reduce = strategy.extended.compressed_all_reduce
        all_reduce._measurement = Nothing(all_reduce.compression_params)
    strategy.measure_every(every)
    with strategy.scope():
        model = keras.Sequential([keras.Input((INPUTS,))])
        for _ in range(options.layers):
            model.add(keras.layers.Dense(options.width, activation="relu"))
        model.add(keras.layers.Dense(CLASSES))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(1)
    samples = options.steps * options.batch_size
    x = random.random((samples, INPUTS), dtype=np.float32)
    y = random.integers(CLASSES, size=samples)
    folder = tempfile.mkdtemp()
    callbacks = [TimedMonitor(folder, every, per_variable=True)] * monitor
    trainer.parameters = model.count_params()  # type: ignore[attr-defined]
    trainer.strategy = strategy  # type: ignore[attr-defined]

    def epoch() -> list[tuple[float, ...]]:
        start, processor = time.perf_counter(), time.process_time()
        model.fit(x, y, options.batch_size, 1, 0, callbacks, shuffle=False)
        passed = time.perf_counter() - start, time.process_time() - processor
        monitoring = sum(callback.seconds for callback in callbacks)
        for callback in callbacks:
            callback.seconds = 0.0
        return [tuple(seconds / options.steps for seconds in (*passed, monitoring))]

    epoch()  # traces
    return epoch


def parts(strategy: tf_gc.CompressedMirroredStrategy, rounds: int = 10_000) -> dict[str, float]:
    """Returns the processor seconds of single parts: medians of 15.

    Args:
      strategy: one whose steps were measured.
      rounds: how many iterations a loop has.
    """
    recorder = ops.Recorder()
    variable = tf.Variable(0)

    @tf.function
    def loop(record: bool) -> None:
        for _ in tf.range(rounds):
            variable.assign_add(1)
            if record:
                with tf.control_dependencies([variable.read_value()]):
                    recorder.note_step(0, True)

    def seconds(call: Callable[[], Any]) -> float:
        call()
        times = []
        for _ in range(15):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        return statistics.median(times)

    return {
        "note_step": (seconds(lambda: loop(True)) - seconds(lambda: loop(False))) / rounds,
        "report": seconds(strategy.report),
        "intervals": seconds(lambda: recorder.intervals(0, True)),
    }


def reductions(variables: int, rounds: int = 15, steps: int = 100) -> dict[str, float]:
    """Returns the processor seconds of a step that does nothing but sum gradients of 64 × 64.

    The other two are less "nothing recorded": medians of the differences, round by round.
    """
    kinds = {"nothing recorded": (False, 100), "as always": (True, 100), "every step": (True, 1)}
    runs = {}
    for name, (record, every) in kinds.items():
        strategy = tf_gc.CompressedMirroredStrategy(
            ["CPU:0", "CPU:1"], tf_gc.Quantized(warm_up=False)
        )
        if not record:
            all_reduce = strategy.extended.compressed_all_reduce
            all_reduce._measurement = Nothing(all_reduce.compression_params)
        strategy.measure_every(every)
        with strategy.scope():
            weights = [tf.Variable(tf.zeros((64, 64))) for _ in range(variables)]

        def replica_step(weights: list[tf.Variable] = weights) -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            gradients = [tf.fill((64, 64), tf.cast(replica + 1, tf.float32)) for _ in weights]
            totals = tf_gc.all_reduce_gradients(list(zip(gradients, weights, strict=True)))
            for weight, total in zip(weights, totals, strict=True):
                weight.assign_sub(total)

        runs[name] = tf.function(lambda s=strategy, step=replica_step: s.run(step))
        runs[name]()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            for _ in range(steps):
                run()
            seconds[name].append((time.process_time() - start) / steps)
    base = seconds.pop("nothing recorded")
    return {
        "nothing recorded": statistics.median(base),
        **{
            name: statistics.median(a - b for a, b in zip(times, base, strict=True))
            for name, times in seconds.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=64, help="of all replicas")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200, help="of an epoch")
    parser.add_argument("--name", default="monitoring", help="of the file written; '' for none")
    options = parser.parse_args()

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * options.replicas,
    )
    runs = {
        "nothing recorded": trainer(options, record=False),
        "as always": trainer(options, record=True),
        "monitor": trainer(options, record=True, monitor=True),
        "every step measured": trainer(options, record=True, every=1),
    }
    rounds = report.alternate(runs, options.rounds)  # type: ignore[arg-type]
    parameters = trainer.parameters  # type: ignore[attr-defined]
    print(f"\n{parameters:,} parameters, {2 * options.layers + 2} variables, {options}")
    print(
        f"{'':22}{'ms a step':>10}{'ratio':>8}{'CPU ms':>10}{'ratio':>8} {'quartiles':16}"
        "callback, CPU ms   (medians)"
    )
    table = {}
    for name, results in rounds.items():
        row: dict[str, Any] = {}
        for i, kind in enumerate(("seconds", "cpu_seconds")):
            mine = [result[0][i] for result in results]  # type: ignore[index]
            base = [result[0][i] for result in rounds["nothing recorded"]]  # type: ignore[index]
            ratios = [a / b for a, b in zip(mine, base, strict=True)]
            low, _, high = statistics.quantiles(ratios, n=4)
            row |= {
                kind: statistics.median(mine),
                f"{kind}_ratio": statistics.median(ratios),
                f"{kind}_ratio_quartiles": [low, high],
            }
        row["callback_cpu_seconds"] = statistics.median(r[0][2] for r in results)  # type: ignore[index]
        table[name] = row
        print(
            f"{name:22}{1e3 * row['seconds']:10.2f}{row['seconds_ratio']:8.3f}"
            f"{1e3 * row['cpu_seconds']:10.2f}{row['cpu_seconds_ratio']:8.3f}"
            " {:.3f} to {:.3f} ".format(*row["cpu_seconds_ratio_quartiles"])
            + f"{1e3 * row['callback_cpu_seconds']:15.4f}"
        )
    alone = parts(trainer.strategy)  # type: ignore[attr-defined]
    for variables in (8, 32):
        sums = reductions(variables)
        alone |= {f"{variables} sums, {name}": seconds for name, seconds in sums.items()}
    for name, seconds in alone.items():
        print(f"{name:30}{1e6 * seconds:10.1f} microseconds")
    if options.name:
        path = report.write(
            options.name,
            {"options": vars(options), "parameters": parameters, "fit": table, "parts": alone},
        )
        print(f"written: {path}")


if __name__ == "__main__":
    main()
