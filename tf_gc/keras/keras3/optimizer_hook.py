"""The hook by which Keras' optimizers hand their gradients to a strategy of tf_gc.

A Keras 3 optimizer sums its gradients by `replica_context.all_reduce(SUM, gradients)`. The strategy
then gets a list of tensors. It cannot tell them from the sums of a synchronized
BatchNormalization, and it does not learn which variables they belong to. The hook replaces that
method, and also the method that applies gradients where Keras' own cannot run under a strategy, and
the one that clips them before the sum.
"""

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_gc.gradients import sum_gradients
from tf_gc.keras.keras3 import private
from tf_gc.keras.keras3.apply_gradients import apply_gradients, needs_decision
from tf_gc.keras.keras3.clipping import (
    as_sent,
    clip_rows,
    clip_sums,
    clips_after_sum,
    has_rows_to_clip,
)
from tf_gc.keras.keras3.variables import tf_variable
from tf_gc.keras.strategy import strategy_of_replica
from tf_gc.state.stream import stream_of

GradsAndVars = list[tuple[Any, Any]]


def install() -> None:
    """Hooks into Keras' optimizers; further calls change nothing.

    Raises:
      ImportError: if the installed Keras reduces gradients in a way that tf_gc does not know.
        Training would then silently be uncompressed.
    """
    optimizer_class = private.optimizer_class()
    keras_sum, keras_apply, keras_clip = (getattr(optimizer_class, name) for name in private.STEPS)
    if hasattr(keras_sum, "hooked_by_tf_gc"):
        return

    @functools.wraps(keras_sum)
    def all_reduce_sum_gradients(self: Any, grads_and_vars: Any) -> GradsAndVars:
        if strategy_of_replica() is None:
            return keras_sum(self, grads_and_vars)
        pairs = list(grads_and_vars)
        # Keras may have taken the `tf.Variable` out already. The optimizer knows their paths.
        for variable in self._trainable_variables:
            tf_variable(variable)
        sums = sum_gradients(
            [(as_sent(g, tf_variable(variable)), tf_variable(variable)) for g, variable in pairs],
            stream_of(self, self.name),
        )
        if clips_after_sum():
            sums = clip_sums(self, sums)
        return [(total, variable) for total, (_, variable) in zip(sums, pairs, strict=True)]

    @functools.wraps(keras_apply)
    def backend_apply_gradients(self: Any, grads: Any, trainable_variables: Any) -> None:
        if needs_decision(self) and strategy_of_replica() is not None:
            apply_gradients(self, list(grads), list(trainable_variables))
        else:
            keras_apply(self, grads, trainable_variables)

    @functools.wraps(keras_clip)
    def clip_gradients(self: Any, grads: Any) -> Any:
        if clips_after_sum():
            return grads
        return clip_rows(self, grads) if has_rows_to_clip(self, grads) else keras_clip(self, grads)

    all_reduce_sum_gradients.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    hooks = (all_reduce_sum_gradients, backend_apply_gradients, clip_gradients)
    for name, hook in zip(private.STEPS, hooks, strict=True):
        setattr(optimizer_class, name, hook)
    _install_agreement_on_finite_gradients()


def _install_agreement_on_finite_gradients() -> None:
    """Makes LossScaleOptimizer skip a step if the gradients of any replica overflow.

    Keras looks only at the gradients of one replica of each worker, before the sum. Then replicas
    could take different branches, and workers would wait for each other for ever.
    """
    keras_check = keras.optimizers.LossScaleOptimizer.check_finite

    @functools.wraps(keras_check)
    def check_finite(self: Any, grads: Any) -> Any:
        finite = keras_check(self, grads)
        if strategy_of_replica() is None:
            return finite
        overflowed = tf.where(finite, 0.0, 1.0)
        context = tf.distribute.get_replica_context()
        return tf.equal(context.all_reduce(tf.distribute.ReduceOp.SUM, overflowed), 0.0)

    keras.optimizers.LossScaleOptimizer.check_finite = check_finite
