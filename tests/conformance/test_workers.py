"""The stock MultiWorkerMirroredStrategy and ours keep their promises, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import matrix
from tests.conformance import strategies
from tests.conformance.promise import promises
from tests.multiworker import cluster

pytestmark = [pytest.mark.multiworker, matrix]


# Beginnings of the names of promises that ours are not asked for here. Files and programs of Keras
# are those of tests/multiworker (test_fit.py, test_files.py, test_programs.py); what Keras does in
# each process by itself is asked of one host.
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


# To start processes takes longer than to keep a promise, so that those of a cluster keep all.
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
        "conformance_scenarios:keep_promises",
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
