"""Each kind of params under the strategy of one host; tests/multiworker has the others."""

import pytest

import tf_gc
from tests.strategies.helpers import cpus
from tests.strategies.kinds import EXAMPLES, check_sums


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_kind_sums_on_one_host(name: str) -> None:
    check_sums(tf_gc.CompressedMirroredStrategy(cpus(2), EXAMPLES[name]))
