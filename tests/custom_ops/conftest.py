"""Fixtures for tests of the native code."""

from collections.abc import Iterator

import pytest

from tests.custom_ops import native
from tests.custom_ops.cases import Parity, Targets
from tests.custom_ops.compact_cases import Wire
from tf_gc.ops import _loader as ops


@pytest.fixture(scope="session")
def _library() -> native.Library:
    ops.load()  # into TensorFlow, whose symbols it needs
    return native.Library(ops.library_path())


@pytest.fixture
def library(_library: native.Library) -> Iterator[native.Library]:
    """The codec library, using the best target before and after the test."""
    best = _library.supported_targets()[-1]
    assert _library.force_target(best)
    yield _library
    assert _library.force_target(best)


@pytest.fixture
def on_each_target(library: native.Library) -> Targets:
    """Gives the library once for each target of this processor, using that one.

    For tests whose inputs and results take longer than the library; `test_parity.py` says which
    targets are missing.
    """

    def targets() -> Iterator[native.Library]:
        for target in library.supported_targets():
            print("target:", target.name)  # pytest shows the last one with a failure
            assert library.force_target(target)
            yield library

    return targets


@pytest.fixture
def parity(on_each_target: Targets) -> Parity:
    return Parity(on_each_target)


@pytest.fixture(
    params=native.COMPACTIBLE, ids=lambda codec: f"{type(codec).__name__}.{codec.name}".lower()
)
def wire(request: pytest.FixtureRequest, on_each_target: Targets) -> Wire:
    return Wire(request.param, on_each_target)
