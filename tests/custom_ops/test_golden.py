"""The oracles give the recorded bytes. Other tests have the library give the oracles' bytes."""

import numpy as np
import pytest

from tests.bits import assert_same_bits
from tests.golden.make import FILES, path_of


@pytest.mark.parametrize("name", FILES)
def test_the_oracles_give_the_recorded_bytes(name: str) -> None:
    with np.load(path_of(name)) as file:
        recorded = dict(file)
    made = FILES[name](recorded)
    assert made.keys() == recorded.keys()
    for key, array in recorded.items():
        assert_same_bits(made[key], array)
