"""Fixtures of the tests with Keras."""

from typing import Any

import pytest
from tensorflow.python.data.ops import iterator_ops

_kept: list[Any] = []


@pytest.fixture
def unfinished_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For training that ends in the middle of an epoch: keeps datasets' iterators alive.

    When TensorFlow (2.21) destroys one that is not at its end, it may wait for its tuning thread,
    for up to a minute.
    """
    stock = iterator_ops.OwnedIterator.__init__

    def keep(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        _kept.append(self)

    monkeypatch.setattr(iterator_ops.OwnedIterator, "__init__", keep)
