"""Pushing gradients in loops that update variables by themselves."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_gc.gradients import GradientValue
from tf_gc.parameter_server.strategy import CompressedParameterServerStrategy
from tf_gc.strategies.all_reduce_gradients import all_reduce_gradients


@tf.autograph.experimental.do_not_convert  # AutoGraph would convert what this calls
def push_gradients(
    grads_and_vars: Iterable[tuple[GradientValue, Any]], stream: str | None = None
) -> list[GradientValue]:
    """Pushes gradients to the parameter servers that have their variables.

    Keras' optimizers do this by themselves under `tf_gc.CompressedParameterServerStrategy`, so it
    is for functions that update variables in another way:

    ```python
    def replica_fn(batch):
        ...
        for gradient, variable in zip(
            tf_gc.push_gradients(zip(gradients, variables)), variables
        ):
            with tf.device(variable.device):  # on the server, or what was pushed comes back
                variable.assign_sub(0.1 * gradient)
    ```

    Args:
      grads_and_vars: pairs of a gradient and its variable, as `tf_gc.all_reduce_gradients` takes.
      stream: a name for what these gradients come from, likewise.

    Returns:
      What was pushed, in the order of the pairs, with `None` where the gradient is `None`. A
      compressed gradient comes out on the server of its variable.

    Raises:
      RuntimeError: outside of the function given to `strategy.run`, or if the strategy is not a
        `tf_gc.CompressedParameterServerStrategy`.
      TypeError: as `tf_gc.all_reduce_gradients`.
      ValueError: likewise.
    """
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, CompressedParameterServerStrategy):
        raise RuntimeError(
            "tf_gc.push_gradients is for functions that tf_gc.CompressedParameterServerStrategy "
            f"runs; the strategy here is {type(strategy).__name__}. To sum gradients over replicas "
            "call tf_gc.all_reduce_gradients"
        )
    return all_reduce_gradients(grads_and_vars, stream)
