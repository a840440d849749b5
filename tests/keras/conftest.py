"""Runs the tests that are marked with `flavours` once with each flavour of Keras."""

from collections.abc import Iterator

import pytest

from tests.cases import matrix
from tests.keras import flavour


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("flavours") is not None:
        names = ["keras", pytest.param("tf_keras", marks=matrix)]
        metafunc.parametrize("_keras_of_test", names, indirect=True, scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # With tf_keras, of each test that `make test` runs its first case.
    items[:] = [
        item
        for item in items
        if "_keras_of_test" not in getattr(getattr(item, "callspec", None), "params", {})
        or sum(1 for _ in item.iter_markers("matrix")) < 2
    ]


@pytest.fixture(scope="module", autouse=True)
def _keras_of_test(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from flavour.use(getattr(request, "param", "keras"))
