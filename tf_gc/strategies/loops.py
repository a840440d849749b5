"""Summing gradients over replicas in loops that have no Keras optimizer."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_gc.gradients import GradientValue, sum_gradients
from tf_gc.keras.variables import tf_variable
from tf_gc.state.stream import named_stream


@tf.autograph.experimental.do_not_convert  # AutoGraph would convert what this calls
def all_reduce_gradients(
    grads_and_vars: Iterable[tuple[GradientValue, Any]], stream: str | None = None
) -> list[GradientValue]:
    """Sums gradients over all replicas, in compressed form if the strategy compresses.

    Call it in the function given to `strategy.run`, at the same place in all replicas. Keras'
    optimizers do this by themselves, so it is for loops that apply gradients in another way.

    Args:
      grads_and_vars: pairs of a gradient and its variable, a `tf.Variable` or `keras.Variable`
        created under the strategy. A gradient may be a dense tensor, a `tf.IndexedSlices` or
        `None`. One that is the same tensor in all of several local replicas, such as the result of
        `strategy.reduce`, is taken as summed already. If a variable occurs more than once, only its
        first gradient is compressed.
      stream: a name for what these gradients come from, such as `"critic"`. Their residuals are
        sent with later gradients of the same name. `None`: in each `strategy.run` the first call
        for a variable, the second one, and so on, go on where they were in the last one.

    Returns:
      The sums in the order of the pairs, with `None` where the gradient is `None`.

    Raises:
      RuntimeError: if called in a cross-replica context, or inside control flow (`tf.cond`,
        `tf.while_loop`) or a nested `tf.function`, where replicas cannot meet.
      TypeError: if `grads_and_vars` has something that is no pair, or `stream` is no string.
      ValueError: if the function is compiled by XLA.
    """
    pairs = list(grads_and_vars)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"grads_and_vars must be pairs (gradient, variable), got {pair!r}")
    if stream is not None and not isinstance(stream, str):
        raise TypeError(f"stream must be None or a string, got {stream!r}")
    return sum_gradients(
        [(gradient, tf_variable(v)) for gradient, v in pairs],
        None if stream is None else named_stream(stream),
    )
