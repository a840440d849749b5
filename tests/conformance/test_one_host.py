"""The stock MirroredStrategy and ours keep their promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import matrix
from tests.conformance import strategies
from tests.conformance.promise import Promise, promises

# Without compression, tests/keras compares these with the stock strategy, to the bit.
AS_STOCK = ("training", "callbacks")
MARKS = {strategies.STOCK: pytest.mark.stock, "none": matrix}


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        pytest.param(
            name,
            promise,
            id=f"{promise.name}-{name}",
            # That the stock strategy keeps it shows that it is a promise.
            marks=MARKS.get(name, ()),
        )
        for name in strategies.NAMES
        for promise in promises(
            stock=name == strategies.STOCK, workers=False, but=AS_STOCK if name == "none" else ()
        )
    ],
)
def test_the_strategy_keeps_its_promise(name: str, promise: Promise, tmp_path: Path) -> None:
    promise.keep(strategies.of_one_host(name), tmp_path)
