"""Summing gradients over replicas, for custom loops and for Keras' optimizers."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc import _compat
from tf_gc.keras.flavour import tf_variable

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices | None"


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
        replicas, such as the result of `strategy.reduce`, is taken as summed already.

    Returns:
      The sums in the order of the pairs, in this replica, with `None` where the gradient is
      `None`.

    Raises:
      RuntimeError: if called in a cross-replica context, or inside control flow (`tf.cond`,
        `tf.while_loop`) or a nested `tf.function`, where replicas cannot meet.
      ValueError: if the function is compiled by XLA.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        raise RuntimeError(
            "tf_gc.all_reduce_gradients must be called in a replica context, that is in the "
            "function given to strategy.run"
        )
    pairs = [(gradient, tf_variable(variable)) for gradient, variable in grads_and_vars]
    present = [pair for pair in pairs if pair[0] is not None]
    if not present:
        return [None] * len(pairs)
    if _compat.in_xla_context(tf.compat.v1.get_default_graph()):
        raise ValueError(
            "tf_gc cannot sum gradients inside a function compiled by XLA: pass "
            "jit_compile=False to model.compile() or tf.function()"
        )
    gradients, variables = zip(*present, strict=True)
    sums = iter(context.merge_call(_batch_reduce, args=(gradients, variables)))
    return [None if gradient is None else next(sums) for gradient, _ in pairs]


def _batch_reduce(
    strategy: tf.distribute.Strategy, gradients: tuple[Any, ...], variables: tuple[Any, ...]
) -> list[Any]:
    state = getattr(strategy, "compression_state", None)
    if state is not None and strategy.num_replicas_in_sync == 1:
        gradients = tuple(map(state.add_restored, gradients, variables))
        state.say_what_was_restored()
    # TensorFlow hands on one tensor as it is where all local replicas have the same.
    several = strategy.num_replicas_in_sync > 1 and len(strategy.extended.worker_devices) > 1
    to_reduce = [
        i
        for i, gradient in enumerate(gradients)
        if not several or isinstance(gradient, tf.distribute.DistributedValues)
    ]
    results = list(gradients)
    if to_reduce:
        # The variables travel as destinations: CompressedAllReduce tells a gradient by them.
        sums = strategy.extended.batch_reduce_to(
            tf.distribute.ReduceOp.SUM, [(gradients[i], variables[i]) for i in to_reduce]
        )
        for i, total in zip(to_reduce, sums, strict=True):
            results[i] = total
    return results
