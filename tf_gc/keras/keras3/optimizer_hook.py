"""The hooks by which Keras' optimizers hand their gradients to a strategy of tf_gc.

A Keras 3 optimizer sums its gradients by `replica_context.all_reduce`. A strategy cannot tell such
a list of tensors from the sums of a synchronized BatchNormalization, and does not learn which
variables they belong to.
"""

import math
from typing import Any

import keras
import tensorflow as tf

from tf_gc._compat.lookup import owner_of
from tf_gc.gradients import sum_gradients
from tf_gc.keras.hook import Method, hook, hook_in_replica
from tf_gc.keras.keras3 import private
from tf_gc.keras.keras3.apply_gradients import apply_gradients, needs_decision
from tf_gc.keras.keras3.clipping import clip_rows, clip_sums, clips_rows
from tf_gc.keras.scope import check_scope
from tf_gc.keras.strategy import KerasStrategy, strategy_of_replica
from tf_gc.keras.variables import is_variable, tf_variable
from tf_gc.state.stream import stream_of


def install() -> None:
    """Hooks into Keras' optimizers."""
    optimizer_class = owner_of(private.OPTIMIZER)
    hook(optimizer_class, "add_variable_from_reference", _add_slot)
    hook(optimizer_class, "_backend_apply_gradients", _apply)
    hook_in_replica(optimizer_class, "_all_reduce_sum_gradients", _sum)
    hook_in_replica(optimizer_class, "_clip_gradients", _clip)
    hook_in_replica(optimizer_class, "_overwrite_variables_directly_with_gradients", _overwrite)
    hook_in_replica(keras.optimizers.LossScaleOptimizer, "check_finite", _check_finite)


def _sum(strategy: KerasStrategy, keras_sum: Method, optimizer: Any, grads_and_vars: Any) -> Any:
    pairs = list(grads_and_vars)
    # Keras may have taken the `tf.Variable` out already. The optimizer knows their paths.
    for variable in optimizer._trainable_variables:
        tf_variable(variable)
    to_sum = []
    for gradient, variable in pairs:
        inner = tf_variable(variable)
        are_clipped = not strategy.clip_after_sum and clips_rows(optimizer, [gradient])
        # Rows that are not compressed get dense, as Keras makes them: an optimizer may square what
        # it gets, and the stock ops do not merge rows.
        if are_clipped and not strategy.compresses_rows_of(inner):
            gradient = tf.convert_to_tensor(gradient)
        to_sum.append((gradient, inner))
    sums = sum_gradients(to_sum, stream_of(optimizer, optimizer.name))
    if strategy.clip_after_sum:
        sums = clip_sums(optimizer, sums)
    return [(total, variable) for total, (_, variable) in zip(sums, pairs, strict=True)]


def _apply(keras_apply: Method, optimizer: Any, grads: Any, variables: Any) -> None:
    check_scope(optimizer, variables)
    strategy = strategy_of_replica()
    if strategy is not None and needs_decision(optimizer):
        apply_gradients(strategy, optimizer, list(grads), list(variables))
    else:
        keras_apply(optimizer, grads, variables)


def _clip(strategy: KerasStrategy, keras_clip: Method, optimizer: Any, grads: Any) -> Any:
    if strategy.clip_after_sum:
        return grads
    variables = map(tf_variable, optimizer._trainable_variables)
    if clips_rows(optimizer, grads) and any(map(strategy.compresses_rows_of, variables)):
        return clip_rows(optimizer.global_clipnorm, grads)
    return keras_clip(optimizer, grads)


def _add_slot(keras_add: Method, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    variable = args[0] if args else kwargs["reference_variable"]
    check_scope(optimizer, [variable, optimizer._iterations])
    return keras_add(optimizer, *args, **kwargs)


def _overwrite(
    strategy: KerasStrategy, keras_overwrite: Method, optimizer: Any, grads: Any, variables: Any
) -> Any:
    """Lets all replicas overwrite a weight with the largest of their values.

    Keras' float8 layers compute scales and histories of the largest elements as gradients, each
    replica from its own part of the batch. The largest are those of the whole batch.
    """
    grads = list(grads)
    chosen = [i for i, v in enumerate(variables) if is_variable(v) and v.overwrite_with_gradient]
    if chosen and strategy.layer_state is not None:
        mine = [tf.convert_to_tensor(grads[i]) for i in chosen]
        dtype = tf.float64 if any(each.dtype == tf.float64 for each in mine) else tf.float32
        packed = tf.concat([tf.reshape(tf.cast(each, dtype), [1, -1]) for each in mine], axis=1)
        of_all = tf.distribute.get_replica_context().all_gather(packed, axis=0)
        largest = tf.split(tf.reduce_max(of_all, axis=0), [math.prod(m.shape) for m in mine])
        for i, value, like in zip(chosen, largest, mine, strict=True):
            grads[i] = tf.cast(tf.reshape(value, like.shape), like.dtype)
    return keras_overwrite(optimizer, grads, variables)


def _check_finite(_: KerasStrategy, keras_check: Method, optimizer: Any, grads: Any) -> Any:
    """Lets LossScaleOptimizer skip a step if the gradients of any replica overflow.

    Keras looks only at the gradients of one replica of each worker, before the sum. Then replicas
    could take different branches, and workers would wait for each other for ever.
    """
    finite = keras_check(optimizer, grads)
    context = tf.distribute.get_replica_context()
    overflowed = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.where(finite, 0.0, 1.0))
    return tf.equal(overflowed, 0.0)
