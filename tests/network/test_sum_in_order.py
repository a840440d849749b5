"""Sums that must not depend on which op is done first."""

import numpy as np
import pytest
import tensorflow as tf

from tf_gc.network.group import sum_in_order

_VALUES = (1e8, -1e8, 1.0, 1e8, 3.0, -1e8, 0.5, 7.0, 1e-3, 11.0)


@pytest.mark.parametrize("count", range(1, len(_VALUES) + 1))
def test_tensors_are_added_in_their_order_whichever_memory_may_be_reused(count: int) -> None:
    # 1e8 - 1e8 + 1 is 1 in this order, and 0 in the order that begins with 1.
    expected = np.float32(0)
    for value in _VALUES[:count]:
        expected += np.float32(value)
    for reusable in range(count):

        @tf.function(jit_compile=False)
        def total(tensors: list[tf.Tensor], reusable: int = reusable) -> tf.Tensor:
            # The caller keeps the arguments; a product that only the sum uses may be reused.
            return sum_in_order([2 * x if i == reusable else x for i, x in enumerate(tensors)])

        values = [np.full(100_000, v / (2 if i == reusable else 1)) for i, v in enumerate(_VALUES)]
        np.testing.assert_array_equal(
            total([tf.constant(value, tf.float32) for value in values[:count]]),
            np.full(100_000, expected),
        )
