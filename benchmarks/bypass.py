"""From which size compressing a tensor pays: stock all-reduce against two bits.

Sums a list of equal tensors over replicas on logical CPU devices, for sizes from 64 to 64 K
elements, with the stock strategy and with every tensor compressed. The size from which the
compressed sum takes less time than the stock one is what `TwoBit.bypass_size` defaults to.
Writes results/bypass.json and .png.

    python benchmarks/bypass.py
"""

import argparse
import os
import statistics
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import matplotlib
import report
import tensorflow as tf

import tf_gc

matplotlib.use("Agg")
from matplotlib import pyplot as plt

SIZES = [1 << power for power in range(6, 17)]


def build(strategy: tf.distribute.Strategy, size: int, count: int, steps: int) -> Callable:
    """Returns a function that times sums of `count` gradients of `size` elements."""
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(size)) for _ in range(count)]

    def replica_step() -> None:
        gradients = [tf.random.stateless_normal([size], seed=[1, i]) for i in range(count)]
        sums = tf_gc.all_reduce_gradients(list(zip(gradients, variables, strict=True)))
        for variable, total in zip(variables, sums, strict=True):
            variable.assign_sub(total)

    @tf.function
    def step() -> None:
        strategy.run(replica_step)

    return report.timed(step, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--tensors", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20, help="timed steps in a round")
    options = parser.parse_args()

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * options.replicas,
    )
    devices = [f"CPU:{i}" for i in range(options.replicas)]
    compressed = tf_gc.CompressedMirroredStrategy(
        devices, tf_gc.TwoBit(warm_up=False, bypass_size=0)
    )
    # The stock path, in a strategy whose collectives do not meet those of another one.
    stock = tf_gc.CompressedMirroredStrategy(devices, tf_gc.NoCompression())

    print(f"{options.tensors} tensors of N elements, {options.replicas} replicas")
    print(f"{'N':>8}{'stock ms':>10}{'2bit ms':>10}{'of stock':>10}")
    rows = []
    for size in SIZES:
        runs = {
            "stock": build(stock, size, options.tensors, options.steps),
            "2bit": build(compressed, size, options.tensors, options.steps),
        }
        results = report.alternate(runs, options.rounds)
        times = {name: report.medians(rounds) for name, rounds in results.items()}
        ratio = statistics.median(
            ours / theirs for ours, theirs in zip(times["2bit"], times["stock"], strict=True)
        )
        row = {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}
        rows.append({"size": size, **row, "of_stock": ratio})
        print(f"{size:8}{row['stock']:10.2f}{row['2bit']:10.2f}{ratio:10.2f}")
    path = report.write("bypass", {"options": vars(options), "sizes": rows})

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.semilogx(SIZES, [row["of_stock"] for row in rows], "o-", base=2)
    axes.axhline(1, color="gray", linewidth=1)
    axes.axvline(tf_gc.TwoBit().bypass_size, color="gray", linestyle=":", label="bypass_size")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("elements in a tensor")
    axes.set_ylabel("time, stock = 1")
    axes.legend()
    figure.savefig(path.with_suffix(".png"), dpi=120)
    print(f"written: {path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
