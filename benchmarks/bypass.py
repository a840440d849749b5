"""From which size compressing a tensor pays: stock all-reduce against two and three bits.

Sums a list of equal tensors over replicas on logical CPU devices, for sizes from 64 to 64 K
elements, with the stock strategy and with every tensor compressed. The default of `bypass_size`
is larger than the size from which compressing takes less time; docs/decisions/small-tensors.md
says why. Writes results/bypass.json and .png.

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
COMPRESSED = [2, 3]  # bits


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
    strategies = {
        # The stock path, in a strategy whose collectives do not meet those of another one.
        "stock": tf_gc.NoCompression(),
        **{
            f"{bits} bits": tf_gc.Quantized(bits, warm_up=False, bypass_size=0)
            for bits in COMPRESSED
        },
    }
    strategies = {
        name: tf_gc.CompressedMirroredStrategy(devices, params)
        for name, params in strategies.items()
    }

    print(f"{options.tensors} tensors of N elements, {options.replicas} replicas; ms, and of stock")
    print(f"{'N':>8}{'stock':>10}" + "".join(f"{f'{bits} bits':>18}" for bits in COMPRESSED))
    rows = []
    for size in SIZES:
        runs = {
            name: build(strategy, size, options.tensors, options.steps)
            for name, strategy in strategies.items()
        }
        results = report.alternate(runs, options.rounds)
        times = {name: report.medians(rounds) for name, rounds in results.items()}
        milliseconds = {name: 1e3 * statistics.median(of) for name, of in times.items()}
        of_stock = {
            name: statistics.median(
                ours / theirs for ours, theirs in zip(of, times["stock"], strict=True)
            )
            for name, of in times.items()
        }
        rows.append({"size": size, "milliseconds": milliseconds, "of_stock": of_stock})
        print(
            f"{size:8}{milliseconds['stock']:10.2f}"
            + "".join(
                f"{milliseconds[f'{bits} bits']:10.2f}{of_stock[f'{bits} bits']:8.2f}"
                for bits in COMPRESSED
            )
        )
    path = report.write("bypass", {"options": vars(options), "sizes": rows})

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for bits in COMPRESSED:
        name = f"{bits} bits"
        axes.semilogx(SIZES, [row["of_stock"][name] for row in rows], "o-", base=2, label=name)
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
