"""Comparing arrays by their bits."""

from typing import Any

import numpy as np


def assert_same_bits(left: Any, right: Any) -> None:
    """Asserts that two arrays have the same dtype, shape and bits, of every NaN as well."""
    left, right = np.asarray(left), np.asarray(right)
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    unsigned = np.dtype(f"u{left.dtype.itemsize}")
    np.testing.assert_array_equal(left.view(unsigned), right.view(unsigned))
