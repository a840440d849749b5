"""What workers promise; see tests/conformance."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance import strategies
from tests.conformance.promise import promises


def keep_promises(names: Sequence[str], folder: str) -> dict[str, dict[str, str]]:
    """Returns, by strategy and promise, how each was broken: "" if it was kept."""
    results: dict[str, dict[str, str]] = {}
    for name in names:
        strategy = strategies.of_workers(name)
        results[name] = {}
        for promise in promises(stock=name == strategies.STOCK, workers=True):
            path = Path(folder, name, promise.name)
            path.mkdir(parents=True, exist_ok=True)
            start = time.monotonic()
            try:
                promise.keep(strategy, path)
                results[name][promise.name] = ""
            except (Exception, pytest.fail.Exception):
                results[name][promise.name] = traceback.format_exc()
            # In the log, which is shown if the workers hang.
            took = f"{time.monotonic() - start:.2f} s"
            print(name, promise.name, took, results[name][promise.name], file=sys.stderr)
    return results
