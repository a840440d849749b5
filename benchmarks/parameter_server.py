"""Step times of two workers with two parameter servers, over links shaped to a rate.

All modes run in one go: stock, pushes in codes with pulls in full, in bfloat16 and as differences;
the first two also with variables cut into a shard for each server. Coordinator, workers and servers
each have a network namespace of their own (network_links.py), so this needs root. Modes take turns
at each rate. A step time is what a worker takes for a step; bytes are those that all workers
together send (pushed) and all servers (pulled), per step, as counted where the links end.

    python benchmarks/parameter_server.py --rates 100mbit 1gbit none

Writes results/parameter_server.json and a picture of it.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import network_links
import numpy as np
import report
from network_jobs import kill

from tf_gc.launch.tasks import tasks_of

WORKERS, SERVERS = 2, 2
# By the name of a mode: the arguments of our strategy, or None for the stock one; and how many
# shards a variable has.
MODES: dict[str, tuple[dict[str, Any] | None, int]] = {
    "stock": (None, 1),
    "push": ({}, 1),
    "bfloat16": ({"pull": "bfloat16"}, 1),
    "delta": ({"pull": "delta"}, 1),
    "delta, 2 bits": ({"pull": "delta", "compression_params": {"type": "2bit"}}, 1),
    "stock, sharded": (None, SERVERS),
    "push, sharded": ({}, SERVERS),
    "delta, sharded": ({"pull": "delta"}, SERVERS),
}
# Steps of a worker before anything is measured: tracing, whole pulls, exact pushes.
WARM_UP = 40


class Job:
    """The tasks of one mode, idle between orders."""

    def __init__(self, mode: str, task: dict[str, Any], links: Any) -> None:
        self.mode = mode
        self._log = tempfile.NamedTemporaryFile(prefix="tf_gc_ps_")  # noqa: SIM115
        addresses = links.with_ports()
        counts = {"chief": 1, "worker": WORKERS, "ps": SERVERS}
        self._tasks = []
        variables = {"TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        for number, one in enumerate(tasks_of(counts, addresses)):
            chief = number == 0
            program = [__file__, json.dumps(task)] if chief else ["-m", "tf_gc.server"]
            process = subprocess.Popen(
                [*links.prefix(number), sys.executable, *program],
                env={**one.environment(), **variables},
                start_new_session=True,
                stdin=subprocess.PIPE if chief else subprocess.DEVNULL,
                stdout=subprocess.PIPE if chief else self._log,
                stderr=self._log,
            )
            self._tasks.append(process)
        self._chief = self._tasks[0]

    def order(self, steps: int) -> float:
        """Has all workers together make `steps` steps; returns the seconds that took."""
        self._chief.stdin.write(f"{steps}\n".encode())
        self._chief.stdin.flush()
        line = self._chief.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.mode} failed:\n{Path(self._log.name).read_text()[-3000:]}")
        return float(line)

    def close(self) -> None:
        kill(self._tasks)
        self._log.close()


def coordinate(task: dict[str, Any]) -> None:
    """Is the coordinator: makes as many steps as each line of its input says."""
    import network_worker
    import tensorflow as tf

    import tf_gc

    arguments, shards = MODES[task["mode"]]
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    partitioner = None
    if shards > 1:
        partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(shards)
    if arguments is None:
        strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner)
    else:
        strategy = tf_gc.CompressedParameterServerStrategy(resolver, partitioner, **arguments)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    if shards > 1:
        with strategy.scope():
            step = _sharded(strategy, task["batch"])
    else:
        step, _ = network_worker.build(strategy, task["model"], task["batch"])
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            coordinator.schedule(step)
        coordinator.join()
        print(time.perf_counter() - start, flush=True)


def _sharded(strategy: Any, batch: int) -> Any:
    """Returns a step of the MLP of models.py in plain TensorFlow, for Keras 3 has no shards."""
    import models
    import tensorflow as tf

    import tf_gc

    sizes = [2048, 2048, 2048, 2048, 10]
    kernels = [
        tf.Variable(tf.random.normal([a, b], stddev=a**-0.5), name=f"kernel{i}")
        for i, (a, b) in enumerate(itertools.pairwise(sizes))
    ]
    shards = [shard for kernel in kernels for shard in kernel.variables]
    x, y = models.reals(batch, sizes[0]), models.labels(10, batch)
    compressed = isinstance(strategy, tf_gc.CompressedParameterServerStrategy)

    @tf.function
    def step() -> tf.Tensor:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                hidden = tf.constant(x)
                for kernel in kernels[:-1]:
                    hidden = tf.nn.relu(tf.matmul(hidden, tf.convert_to_tensor(kernel)))
                logits = tf.matmul(hidden, tf.convert_to_tensor(kernels[-1]))
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, shards)
            if compressed:
                gradients = tf_gc.push_gradients(list(zip(gradients, shards, strict=True)))
            for gradient, shard in zip(gradients, shards, strict=True):
                with tf.device(shard.device):
                    shard.assign_sub(1e-3 * gradient)
            return loss

        return strategy.run(replica)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rates", nargs="+", default=["100mbit", "1gbit", "none"])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--batch", type=int, default=32, help="of a worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="about, of a measurement")
    parser.add_argument("--name", default="parameter_server", help="of the result")
    options = parser.parse_args()
    for rate in options.rates:
        network_links.bits_per_second(rate)
    with contextlib.ExitStack() as stack:
        links = stack.enter_context(network_links.Links(1 + WORKERS + SERVERS))
        jobs = []
        for mode in options.modes:
            task = {"mode": mode, "model": options.model, "batch": options.batch}
            jobs.append(Job(mode, task, links))
            stack.callback(jobs[-1].close)
            jobs[-1].order(WARM_UP * WORKERS)
        rates = {rate: measure(jobs, links, rate, options) for rate in options.rates}
    for rate, modes in rates.items():
        show(rate, modes)
    settings = {"model": options.model, "batch": options.batch, "rounds": options.rounds}
    path = report.write(options.name, {"settings": settings, "rates": rates})
    draw(rates, path.with_suffix(".png"))
    print(path)


def measure(
    jobs: Sequence[Job], links: Any, rate: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Lets all modes take turns at a rate; returns for each its times and bytes."""
    links.set_rate(rate)
    measured: dict[str, dict[str, Any]] = {}
    steps = {}
    for job in jobs:
        # As many steps as take about as long as asked for, by some that are not counted.
        seconds = job.order(WORKERS)
        steps[job.mode] = WORKERS * max(2, min(200, round(options.seconds / seconds)))
        measured[job.mode] = {"seconds": [], "pushed": [], "pulled": []}
    for _ in range(options.rounds):
        for job in jobs:
            count = steps[job.mode]
            before = [sent for sent, *_ in links.sent()]
            seconds = job.order(count)
            sent = [a - b for (a, *_), b in zip(links.sent(), before, strict=True)]
            of_mode = measured[job.mode]
            of_mode["seconds"].append(seconds / (count / WORKERS))
            of_mode["pushed"].append(sum(sent[1 : WORKERS + 1]) / count)
            of_mode["pulled"].append(sum(sent[WORKERS + 1 :]) / count)
    return measured


def draw(rates: dict[str, Any], path: Path) -> None:
    """Draws the step times of all modes, and from the fastest to the slowest round."""
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(rates), figsize=(3.4 * len(rates), 3.6), sharey=True)
    for axes, (rate, modes) in zip(np.atleast_1d(all_axes), rates.items(), strict=True):
        for row, (mode, values) in enumerate(reversed(modes.items())):
            times = [1e3 * seconds for seconds in values["seconds"]]
            color = "0.6" if mode.startswith("stock") else "tab:blue"
            axes.barh(row, statistics.median(times), color=color)
            axes.plot([min(times), max(times)], [row, row], color="black", linewidth=1)
        axes.set_yticks(range(len(modes)), list(reversed(modes)))
        axes.set(title=network_links.label(rate), xlabel="ms a step")
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def show(rate: str, modes: dict[str, Any]) -> None:
    """Prints medians, and ratios to the stock strategy of the same kind of variables."""
    print(f"\n{rate}")
    for mode, values in modes.items():
        seconds = statistics.median(values["seconds"])
        pushed, pulled = (statistics.median(values[key]) for key in ("pushed", "pulled"))
        stock = modes.get("stock, sharded" if mode.endswith("sharded") else "stock")
        ratios = ""
        if stock is not None:
            of_stock = [
                statistics.median(stock[key]) / statistics.median(values[key])
                for key in ("seconds", "pushed", "pulled")
            ]
            ratios = "  {:.2f} times as fast, bytes / {:.1f}, / {:.1f}".format(*of_stock)
        print(
            f"  {mode:16} {seconds * 1e3:8.1f} ms  pushed {pushed / 1e3:9,.0f} kB  "
            f"pulled {pulled / 1e3:9,.0f} kB{ratios}"
        )


if __name__ == "__main__":
    if "TF_CONFIG" in os.environ:
        coordinate(json.loads(sys.argv[1]))
    else:
        main()
