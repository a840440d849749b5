"""The stock MultiWorkerMirroredStrategy and ours keep their promises, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import matrix
from tests.conformance import strategies
from tests.conformance.promise import promises
from tests.multiworker import cluster

pytestmark = [pytest.mark.multiworker, matrix]


# Beginnings of the names of promises that are left out. What does not depend on how many devices a
# worker has: who writes which files, and what Keras does with losses, metrics and steps on top of
# what the other promises are about.
NOT_WITH_TWO_DEVICES = (
    "saving",
    "callbacks",
    "training.steps",
    *(
        f"training.training_is_as_without_a_strategy[{name}"
        for name in (
            *("sources", "weighted", "run eagerly", "dicts"),
            *("no targets", "own", "one batch"),
        )
    ),
)
# In tests/multiworker, test_fit.py, test_files.py and test_programs.py ask workers with one device
# each for more of these. What Keras does in each process by itself is asked of one host.
NOT_WITH_ONE_DEVICE = (
    "training.steps",
    "training.all_variables_are_the_same",
    "callbacks.callbacks_write_files",
    "callbacks.a_backup_goes_on",
    "callbacks.callbacks_act_as_without_a_strategy[moving average",
    *(
        f"training.training_is_as_without_a_strategy[{name}"
        for name in ("sources", "evaluate", "predict", "dicts", "no targets")
    ),
)
LIMIT = 1500  # seconds; one minute where nothing else runs


# To start processes takes longer than to keep a promise, so that those of a cluster keep all.
@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize(
    ("names", "devices", "but"),
    [
        # The stock strategy takes one CPU of each worker.
        pytest.param((strategies.STOCK,), 1, (), id="stock", marks=pytest.mark.stock),
        pytest.param(("compressed",), 1, NOT_WITH_ONE_DEVICE, id="ours"),
        pytest.param(("compressed",), 2, NOT_WITH_TWO_DEVICES, id="ours with two devices each"),
    ],
)
def test_workers_keep_their_promises(
    names: tuple[str, ...], devices: int, but: tuple[str, ...], tmp_path: Path
) -> None:
    results = cluster.values(
        "conformance_scenarios:keep_promises",
        names,
        str(tmp_path),
        but,
        devices=devices,
        limit=LIMIT,
    )
    broken, asked = [], set()
    for task, of_strategies in enumerate(results):
        for name, result in of_strategies.items():
            asked |= {(task, name, promise) for promise in result}
            broken += [f"worker {task}: {name}: {p}\n{how}" for p, how in result.items() if how]
    assert not broken, "\n".join(broken)
    assert asked == {
        (task, name, promise.name)
        for task in range(2)
        for name in names
        for promise in promises(stock=name == strategies.STOCK, workers=True, but=but)
    }
