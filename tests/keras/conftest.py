"""Fixtures of the tests with Keras."""

import pytest

from tests.keras.iterators import keep_iterators


@pytest.fixture
def unfinished_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For training that ends in the middle of an epoch."""
    keep_iterators(monkeypatch)
