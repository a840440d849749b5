"""Chooses, of many cases, the one that `make test` runs; `make test-all` runs all."""

from collections.abc import Callable
from typing import Any

import pytest

matrix = pytest.mark.matrix


def cases(
    names: str, default: Any, *more: Any, ids: Callable[[Any], str] | None = None
) -> pytest.MarkDecorator:
    """Parametrizes a test as `pytest.mark.parametrize` does, by values, tuples or `pytest.param`s.

    `make test` runs it with the first case, which shows most, `make test-all` with all.
    """
    single = "," not in names

    def in_matrix(case: Any) -> Any:
        if isinstance(case, type(pytest.param())):
            return pytest.param(*case.values, id=case.id, marks=[*case.marks, matrix])
        return pytest.param(*((case,) if single else case), marks=matrix)

    return pytest.mark.parametrize(names, [default, *map(in_matrix, more)], ids=ids)
