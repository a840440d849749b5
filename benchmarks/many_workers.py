"""The cost of a worker as the job grows: seconds to its first step, memory, bytes of a step.

Jobs of more and more workers train a model, by default the smallest that is compressed, one job
after the other, each worker with one thread, in network namespaces as those of network.py (Linux,
as root). A start is all until the first compressed step has ended.

    sudo python benchmarks/many_workers.py

Writes results/many_workers.json: of worker 0, whom the others ask, and the median of the others.
"""

import argparse
from typing import Any

import network
import numpy as np
import report

STEPS = 100
JOB = {"batch_size": 8, "threads": 1, "step_limit": 600, "limit": 1200}


def measure(model: str, mode: str, workers: int) -> dict[str, list[float]]:
    options = argparse.Namespace(model=model, **JOB)
    with (
        network.Links(workers) as links,
        network.Jobs(lambda mode: network.start_job(mode, options, links)) as jobs,
    ):
        job = jobs.get(mode)
        job.run(STEPS)
        before = job.spent()
        step = network.measure_round(job, links, STEPS)
        after = job.spent()
    figures: dict[str, Any] = {name: step[name] for name in network.SENT}
    for name, every in (
        ("imports", [one["imports"] for one in job.started]),
        ("start", job.started),
    ):
        for kind in ("processor_seconds", "seconds"):
            figures[f"{name}, {kind}"] = [one[kind] for one in every]
    figures["memory_bytes"] = [one["memory_bytes"] for one in before]
    for kind in before[0]:
        grown = [b[kind] - a[kind] for a, b in zip(before, after, strict=True)]
        figures[f"step, {kind}"] = np.array(grown) / (STEPS + 1)
    return {name: [each[0], float(np.median(each[1:]))] for name, each in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--model", choices=network.MODELS, default="tiny")
    parser.add_argument("--modes", nargs="+", default=["stock", "default"])
    options = parser.parse_args()
    table: dict[int, Any] = {}
    for workers in options.workers:
        for mode in options.modes:
            table.setdefault(workers, {})[mode] = row = measure(options.model, mode, workers)
            print(workers, mode, row, flush=True)
            report.write("many_workers", {"model": options.model, "steps": STEPS, "workers": table})


if __name__ == "__main__":
    main()
