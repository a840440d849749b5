"""Runs the tests that are marked with `flavours` once with each flavour of Keras."""

from collections.abc import Iterator

import pytest

from tests.keras import flavour


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("flavours") is not None:
        names = ["keras", "tf_keras"]
        metafunc.parametrize("_keras_of_test", names, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def _keras_of_test(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from flavour.use(getattr(request, "param", "keras"))
