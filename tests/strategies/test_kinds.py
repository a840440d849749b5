"""Each kind of params under the strategy of one host; tests/multiworker has the others."""

import pytest

from tests.strategies.helpers import strategy_of
from tests.strategies.kinds import EXAMPLES, check_sums


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_kind_sums_on_one_host(name: str) -> None:
    check_sums(strategy_of(EXAMPLES[name]))
