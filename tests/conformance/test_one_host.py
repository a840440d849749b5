"""The stock MirroredStrategy and ours keep their promises."""

import functools
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tf_gc
from tests.cases import matrix
from tests.conformance.promise import Promise, promises
from tests.keras import stock


@functools.cache
def strategy_named(name: str, **options: int) -> tf.distribute.Strategy:
    """Returns a strategy of two devices, the same one each time."""
    if name == "stock":
        return stock.stock_strategy(2)
    return tf_gc.CompressedMirroredStrategy(stock.cpus(2), {"type": name, **options})


def asked(name: str, *marks: Any, of: str = "") -> list[Any]:
    """The promises of a module that a strategy is asked for, or all of them."""
    return [
        pytest.param(name, promise, id=f"{promise.name}-{name}", marks=marks)
        for promise in promises(stock=name == "stock", workers=False)
        if promise.name.startswith(of)
    ]


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        *asked("quantized"),
        # Of all that is asked here, params only change how gradients are summed.
        *asked("none", matrix, of="optimizers"),
        # That the stock strategy keeps it shows that it is a promise.
        *asked("stock", pytest.mark.stock),
    ],
)
def test_the_strategy_keeps_its_promise(name: str, promise: Promise, tmp_path: Path) -> None:
    # Values that are not gradients are not compressed, whatever their size.
    reduces = name == "quantized" and "reductions." in promise.name
    promise.keep(strategy_named(name, **({"bypass_size": 0} if reduces else {})), tmp_path)
