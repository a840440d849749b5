"""Jobs of one or several worker processes on this host, each measured apart from all others."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import local_workers


def run(program: str, task: dict[str, Any], workers: int, limit: float) -> list[Any]:
    """Runs a job and returns what its workers have to say.

    Args:
      program: the file to run, once for each worker, with the task as JSON after `--job`.
      task: what to do.
      workers: how many; a single one has no TF_CONFIG.
      limit: seconds that the job may take.

    Returns:
      The last line that each worker printed, which is JSON.

    Raises:
      RuntimeError: with a worker's log, if one fails.
      TimeoutError: if the job takes longer.
    """
    configs: list[str | None] = [None]
    if workers > 1:
        configs = [*local_workers.tf_configs(local_workers.local_addresses(workers))]
    command = [sys.executable, program, "--job", json.dumps(task)]
    with tempfile.TemporaryDirectory() as folder, local_workers.LocalWorkers() as job:
        logs = [Path(folder, f"log{worker}") for worker in range(workers)]
        for config, log in zip(configs, logs, strict=True):
            with open(log, "wb") as output:
                job.start(command, config, stdout=output, stderr=subprocess.STDOUT)
        failed = job.wait(limit)
        if failed is not None:
            raise RuntimeError(f"{task} failed:\n{logs[failed].read_text()[-3000:]}")
        return [json.loads(log.read_text().splitlines()[-1]) for log in logs]


def status() -> dict[str, int]:
    """Returns the numbers of /proc/self/status; memory is in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = [line.split(":", 1) for line in lines]
    return {key: int(v[0]) for key, text in fields if (v := text.split()) and v[0].isdecimal()}
