"""Summing gradients over replicas in loops that have no Keras optimizer."""

from collections.abc import Iterable
from typing import Any

from tf_gc.gradients import Gradient, sum_gradients
from tf_gc.keras.flavour import tf_variable


def all_reduce_gradients(grads_and_vars: Iterable[tuple[Gradient, Any]]) -> list[Gradient]:
    """Sums gradients over all replicas, in compressed form if the strategy compresses.

    Call it in a replica context, that is in the function given to `strategy.run`, at the same
    place in all replicas. Keras' optimizers do this by themselves, so it is for loops that
    apply gradients in another way. Under a strategy that is not one of tf_gc's the sum is the
    strategy's own.

    Args:
      grads_and_vars: pairs of a gradient and its variable, a `tf.Variable` or
        `keras.Variable` created under the strategy. A gradient may be a dense tensor, a
        `tf.IndexedSlices` or `None`. One that is the same tensor in all of several local
        replicas, such as the result of `strategy.reduce`, is taken as summed already. If a
        variable occurs more than once, only its first gradient is compressed.

    Returns:
      The sums in the order of the pairs, in this replica, with `None` where the gradient is
      `None`.

    Raises:
      RuntimeError: if called in a cross-replica context, or inside control flow (`tf.cond`,
        `tf.while_loop`) or a nested `tf.function`, where replicas cannot meet.
      TypeError: if `grads_and_vars` has something that is no pair.
      ValueError: if the function is compiled by XLA.
    """
    pairs = list(grads_and_vars)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"grads_and_vars must be pairs (gradient, variable), got {pair!r}")
    return sum_gradients([(gradient, tf_variable(v)) for gradient, v in pairs])
