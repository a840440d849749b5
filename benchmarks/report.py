"""Shared by the benchmarks: the machine's description, JSON, repeated timing."""

import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "system": platform.system()}


def write(name: str, result: Mapping[str, Any], directory: Path = RESULTS) -> Path:
    """Writes `result`, with the machine and the date, to `<directory>/<name>.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    path.write_text(json.dumps({"date": date, "machine": machine(), **result}, indent=1) + "\n")
    return path


def timed(step: Callable[[], Any], steps: int) -> Callable[[], list[float]]:
    """Returns a function that runs `steps` steps, after one to warm up, and their seconds."""

    def run() -> list[float]:
        step()
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        return seconds

    return run


def finish_warm_up(strategy: Any, step: Callable[[], Any]) -> None:
    """Makes steps until they are compressed; workers make as many of them as each other."""
    step()
    state = getattr(strategy, "compression_state", None)
    done = 0
    while state is not None and state.warm_up_steps > done:
        done = state.warm_up_steps
        step()


def alternate(
    runs: Mapping[str, Callable[[], list[float]]], rounds: int
) -> dict[str, list[list[float]]]:
    """Calls the runs in turn, `rounds` times, so that all meet the same noise.

    Returns, for each run, its results of each round.
    """
    results: dict[str, list[list[float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            results[name].append(run())
    return results


def medians(rounds: list[list[float]]) -> list[float]:
    return [statistics.median(values) for values in rounds]
