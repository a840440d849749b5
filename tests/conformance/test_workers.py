"""The stock MultiWorkerMirroredStrategy and ours keep their promises, in real processes."""

from __future__ import annotations

import itertools
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cases import matrix
from tests.conformance import strategies
from tests.conformance.promise import promises
from tests.multiworker import cluster

pytestmark = [pytest.mark.multiworker, matrix]


# Beginnings of the names of promises that ours are not asked for here. Files and programs of Keras
# are tested in tests/multiworker (test_fit.py, test_files.py, test_programs.py); one host is asked
# for what Keras does in each process by itself.
IN_OTHER_TESTS = (
    "training.steps",
    "callbacks.callbacks_write_files",
    "callbacks.a_backup_goes_on",
    "callbacks.callbacks_act_as_without_a_strategy[moving average",
    *(
        f"training.training_is_as_without_a_strategy[{name}"
        for name in ("sources", "evaluate", "predict", "dicts", "no targets")
    ),
)
LIMIT = 1500  # seconds, for what else would never end
# After an error of a collective this process can run no other.
_NO_MORE = ("Collective ops is aborted", "collective operation")


def keep_promises(name: str, folder: str, but: Sequence[str]) -> dict[str, str]:
    """Returns, by promise, how a strategy broke it: "" if it was kept."""
    results: dict[str, str] = {}
    paths = itertools.count()  # names of promises have brackets, which are patterns in paths
    strategy = strategies.of_workers(name)
    for promise in promises(stock=name == strategies.STOCK, workers=True, but=but):
        path = Path(folder, str(next(paths)))
        path.mkdir(parents=True, exist_ok=True)
        start, broken = time.monotonic(), ""
        try:
            promise.keep(strategy, path)
        except (Exception, pytest.fail.Exception):
            broken = traceback.format_exc()
        results[promise.name] = broken
        # In the log, which is shown if the workers hang.
        print(f"{promise.name} {time.monotonic() - start:.2f} s {broken}", file=sys.stderr)
        if any(sign in broken for sign in _NO_MORE):
            break
    return results


# To start processes takes longer than to keep a promise, so one cluster keeps all promises.
@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize(
    ("name", "devices", "but"),
    [
        # The stock strategy takes one CPU of each worker.
        pytest.param(strategies.STOCK, 1, (), marks=pytest.mark.stock),
        ("compressed", 2, IN_OTHER_TESTS),
    ],
)
def test_workers_keep_their_promises(
    name: str, devices: int, but: tuple[str, ...], tmp_path: Path
) -> None:
    results = cluster.values(
        keep_promises,
        name,
        str(tmp_path),
        but,
        devices=devices,
        limit=LIMIT,
    )
    asked = {p.name for p in promises(stock=name == strategies.STOCK, workers=True, but=but)}
    for task, result in enumerate(results):
        broken = [f"worker {task}: {promise}\n{how}" for promise, how in result.items() if how]
        assert not broken, "\n".join(broken)
        assert result.keys() == asked
