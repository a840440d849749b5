"""The stock MultiWorkerMirroredStrategy and ours keep their promises, in real processes."""

import sys
import time
import traceback
from pathlib import Path

import pytest
import tensorflow as tf

import tf_gc
from tests.cases import matrix
from tests.conformance.promise import Promise, promises
from tests.multiworker import cluster

pytestmark = [pytest.mark.multiworker, matrix]

STOCK, OURS = (
    tf.distribute.MultiWorkerMirroredStrategy,
    tf_gc.CompressedMultiWorkerMirroredStrategy,
)
LIMIT = 1500  # seconds, for what else would never end
# After an error of a collective this process can run no other.
_NO_MORE = ("Collective ops is aborted", "collective operation")


def of_workers(kind: type) -> list[Promise]:
    return promises(stock=kind is STOCK, workers=True)


def keep_promises(kind: type, folder: str) -> dict[str, str]:
    """Returns, by promise, how a strategy broke it: "" if it was kept."""
    # Where one worker fails, the others do before the test's limit; one that traces takes a while.
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=600.0)
    strategy = kind(communication_options=options)
    results: dict[str, str] = {}
    for number, promise in enumerate(of_workers(kind)):
        path = Path(folder, str(number))  # brackets of names are patterns in paths
        path.mkdir(exist_ok=True)
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
    ("kind", "devices"),
    # The stock strategy takes one CPU of each worker.
    [(OURS, 2), pytest.param(STOCK, 1, marks=pytest.mark.stock)],
)
def test_workers_keep_their_promises(kind: type, devices: int, tmp_path: Path) -> None:
    results = cluster.values(keep_promises, kind, str(tmp_path), devices=devices, limit=LIMIT)
    for task, result in enumerate(results):
        broken = [f"worker {task}: {promise}\n{how}" for promise, how in result.items() if how]
        assert not broken, "\n".join(broken)
        assert result.keys() == {promise.name for promise in of_workers(kind)}
