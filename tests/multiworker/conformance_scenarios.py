"""What workers promise; see tests/conformance."""

from __future__ import annotations

import itertools
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance import strategies
from tests.conformance.promise import promises

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
