"""Shared by the benchmarks: the machine's description, JSON, the end of the warm-up."""

import datetime
import json
import os
import platform
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


def finish_warm_up(strategy: Any, step: Callable[[], Any]) -> None:
    """Makes steps until they are compressed; workers make as many of them as each other."""
    step()
    state = getattr(strategy, "compression_state", None)
    done = 0
    while state is not None and state.warm_up_steps > done:
        done = state.warm_up_steps
        step()
