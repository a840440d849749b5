"""What a worker's death costs a job that `python -m tf_gc.launch --restarts` keeps alive.

Workers train on scikit-learn's digits with a backup each epoch, and nobody looks after them while
random ones get SIGKILL, one is stopped for good, all get SIGTERM, or (as root) the link between two
hosts, which are network namespaces, is cut. Quiet runs give the accuracy to compare.

    python benchmarks/restarts.py

Writes results/restarts.json, and a picture of the steps of the run with kills.
"""

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import network_links
import report

BATCH = 128  # of all workers: 11 steps an epoch
STEP_SECONDS = 0.2  # at least, so that an epoch takes some seconds
MINUTE = 60.0


def work(folder: Path, epochs: int, seed: int) -> None:
    """Trains as a worker; the chief writes down each step and when it ended."""
    import keras
    import numpy as np
    from sklearn import datasets, model_selection

    import tf_gc

    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    index = strategy.cluster_resolver.task_id
    Path(folder, f"pid{index}").write_text(str(os.getpid()))
    digits = datasets.load_digits()
    x, x_test, y, y_test = model_selection.train_test_split(
        np.float32(digits.data / 16), digits.target, test_size=0.25, random_state=1
    )
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        hidden = [keras.layers.Dense(512, "relu") for _ in range(2)]
        model = keras.Sequential([keras.Input((64,)), *hidden, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
    backup = tf_gc.keras.BackupAndRestore(Path(folder, "backup"))

    def note(batch: int, logs: Any) -> None:
        time.sleep(STEP_SECONDS)
        if index == 0:
            with Path(folder, "steps").open("a") as file:
                print(int(model.optimizer.iterations.numpy()), time.time(), file=file)

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=note), backup]
    model.fit(x, y, BATCH, epochs, verbose=0, callbacks=callbacks)
    if not backup.preempted:
        _, accuracy = model.evaluate(x_test, y_test, BATCH, verbose=0)
        Path(folder, f"accuracy{index}").write_text(str(accuracy))


class Job:
    """A job of one launcher on each host, which are all on this machine."""

    def __init__(self, folder: str, options: argparse.Namespace, seed: int) -> None:
        self._folder = Path(folder)
        self._options = options
        self._program = [__file__, f"--folder={folder}", f"--seed={seed}"]
        self._program.append(f"--epochs={options.epochs}")
        self.launchers: list[subprocess.Popen[bytes]] = []

    def start(self, *prefix: str, where: str | None = None) -> "Job":
        """Starts a launcher, which has an option that says where the workers are."""
        where = where or f"--workers={self._options.workers}"
        command = [*prefix, sys.executable, "-m", "tf_gc.launch", "--restarts=20", where]
        with Path(self._folder, "log").open("ab") as log:
            self.launchers.append(subprocess.Popen([*command, *self._program], stderr=log))
        return self

    def log(self) -> str:
        """Returns the lines of the launchers, and the errors of their first tasks."""
        return Path(self._folder, "log").read_text()

    def steps(self) -> list[tuple[int, float]]:
        """Returns the steps that have ended, each with its number and its time."""
        path = Path(self._folder, "steps")
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(number), float(at)) for number, at in map(str.split, lines)]

    def after(self, moment: float, count: int = 1) -> list[tuple[int, float]]:
        """Waits for that many steps that have ended after a moment, and returns them."""
        while len(later := [step for step in self.steps() if step[1] > moment]) < count:
            if all(launcher.poll() is not None for launcher in self.launchers):
                raise SystemExit(f"the job has ended:\n{self.log()}")
            time.sleep(0.05)
        return later

    def signal(self, worker: int, number: int) -> float:
        """Sends a signal to a worker, and returns when."""
        os.kill(int(Path(self._folder, f"pid{worker}").read_text()), number)
        return time.time()

    def cost(self, moment: float) -> dict[str, float]:
        """Returns the seconds from a moment to the next step, and the steps that were lost."""
        settled = moment + 0.5  # a step may just have been on its way
        last = max(number for number, at in self.steps() if at <= settled)
        number, at = self.after(settled)[0]
        return {"seconds": at - moment, "steps": last - number + 1}

    def end(self) -> float:
        """Waits for the end, and returns the accuracy, which is the same on all workers."""
        codes = [launcher.wait() for launcher in self.launchers]
        if any(codes):
            raise SystemExit(self.log())
        (accuracy,) = {path.read_text() for path in self._folder.glob("accuracy*")}
        return float(accuracy)


def quiet(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """A run in which nothing happens."""
    return {"accuracy": job.start().end()}


def kills(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """Random workers, and the chief, are killed, each some seconds after training has gone on."""
    job.start()
    numbers = random.Random(1)
    victims = [numbers.randrange(options.workers) for _ in range(options.kills - 1)]
    victims.insert(options.kills // 2, 0)
    costs, moment = [], 0.0
    for victim in victims:
        job.after(moment, 5)
        time.sleep(numbers.uniform(2, 8))
        moment = job.signal(victim, signal.SIGKILL)
        costs.append({"victim": victim, "at": moment, **job.cost(moment)})
    figures = {name: [cost[name] for cost in costs] for name in ("seconds", "steps")}
    summary = {
        f"{name}, median and most": [statistics.median(values), max(values)]
        for name, values in figures.items()
    }
    return {**summary, "accuracy": job.end(), "kills": costs, "all steps": job.steps()}


def frozen(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """The last worker, and later the chief, is stopped for good, and killed after a minute."""
    job.start()
    moment, result = 0.0, {}
    for victim in (options.workers - 1, 0):
        job.after(moment, 30)
        ended = job.log().count(": starts again in ") + options.workers - 1
        moment = job.signal(victim, signal.SIGSTOP)
        while job.log().count(": starts again in ") < ended:
            time.sleep(0.1)
        gave_up = time.time()
        time.sleep(max(0.0, moment + MINUTE - gave_up))
        killed = job.signal(victim, signal.SIGKILL)
        cost = job.cost(moment)
        result[f"worker {victim}"] = {
            "seconds until others give up": gave_up - moment,
            "seconds from SIGKILL": cost["seconds"] + moment - killed,
            "steps": cost["steps"],
        }
    return {**result, "accuracy": job.end()}


def told(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """The launcher gets SIGTERM, and the same command goes on."""
    job.start().after(0, 30)
    moment = time.time()
    launcher = job.launchers.pop()
    launcher.terminate()
    status, ended = launcher.wait(), time.time()
    cost = job.start().cost(ended)
    accuracy = job.end()
    return {"seconds to end": ended - moment, "status": status, **cost, "accuracy": accuracy}


def cut(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """The link between two hosts carries nothing for a minute."""
    with network_links.Links(2) as links:
        for worker in range(2):
            job.start(*links.prefix(worker), where=f"--hosts={','.join(links.addresses)}")
        job.after(0, 30)
        moment = time.time()
        links.set_up(1, False)
        time.sleep(MINUTE)
        links.set_up(1, True)
        cost = job.cost(moment)
        seconds = cost["seconds"] - MINUTE
        return {"seconds after": seconds, "steps": cost["steps"], "accuracy": job.end()}


def draw(result: dict[str, Any], path: Path) -> None:
    from matplotlib import pyplot as plt

    numbers, times = zip(*result["all steps"], strict=True)
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    axes.plot([at - times[0] for at in times], numbers, ".", markersize=2)
    for kill in result["kills"]:
        axes.axvline(kill["at"] - times[0], color="red", linewidth=0.8)
    axes.set(
        xlabel="seconds", ylabel="step", title="Training goes on when a worker is killed (red)"
    )
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    scenarios = {function.__name__: function for function in (quiet, kills, frozen, told, cut)}
    parser.add_argument("--scenarios", nargs="+", choices=scenarios, default=[*scenarios])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--name", default="restarts", help="of the files written")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of a worker
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.folder:
        work(options.folder, options.epochs, options.seed)
        return
    result: dict[str, Any] = {"workers": options.workers}
    for name in options.scenarios:
        found = []
        for seed in range(1, 6) if name == "quiet" else [1]:
            with tempfile.TemporaryDirectory() as folder:
                job = Job(folder, options, seed)
                try:
                    found.append(scenarios[name](job, options))
                finally:
                    for launcher in job.launchers:
                        launcher.kill()
            print(name, {k: v for k, v in found[-1].items() if k != "all steps"}, flush=True)
        result[name] = found if name == "quiet" else found[0]
    path = report.write(options.name, result)
    if "kills" in result:
        draw(result["kills"], path.with_suffix(".png"))


if __name__ == "__main__":
    main()
