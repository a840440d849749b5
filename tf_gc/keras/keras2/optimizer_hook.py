"""The hook by which Keras 2's optimizers hand their gradients to a strategy of tf_gc.

Keras 2 compresses by itself: its optimizers hand gradients to a strategy together with their
variables. The hook keeps the residuals of different optimizers apart.
"""

import functools
from collections.abc import Callable
from typing import Any

from tf_gc._compat.lookup import Attributes, owner_of, require
from tf_gc.gradients import sum_gradients
from tf_gc.keras.hook import hook
from tf_gc.keras.strategy import strategy_of_replica
from tf_gc.state.stream import stream_of

_STREAMS = "to keep apart what was not sent of different optimizers"
_NEW = Attributes("tf_keras.optimizers.Optimizer", {"aggregate_gradients": _STREAMS})
_LEGACY = Attributes("tf_keras.optimizers.legacy.Optimizer", {"_aggregate_gradients": _STREAMS})

ATTRIBUTES = (_NEW, _LEGACY)


def install() -> None:
    """Hooks into Keras 2's optimizers; further calls only check.

    Raises:
      ImportError: if the installed tf_keras reduces gradients in a way that tf_gc does not know.
    """
    require(*ATTRIBUTES)
    _install()


@functools.cache
def _install() -> None:
    hook(owner_of(_NEW), "aggregate_gradients", _sum)
    hook(owner_of(_LEGACY), "_aggregate_gradients", _sum_of_legacy)


def _sum(keras_sum: Callable[..., Any], optimizer: Any, grads_and_vars: Any) -> Any:
    pairs = list(grads_and_vars)
    if strategy_of_replica() is None or all(gradient is None for gradient, _ in pairs):
        return keras_sum(optimizer, pairs)
    name = getattr(optimizer, "name", type(optimizer).__name__)
    sums = sum_gradients(pairs, stream_of(optimizer, name))
    return [(total, variable) for total, (_, variable) in zip(sums, pairs, strict=True)]


def _sum_of_legacy(keras_sum: Callable[..., Any], optimizer: Any, grads_and_vars: Any) -> Any:
    strategy = strategy_of_replica()
    if strategy is not None and strategy.asynchronous:
        raise NotImplementedError(
            f"{type(optimizer).__name__} is one of tf_keras' legacy optimizers, which would get "
            "what was pushed back from the servers: take the one in tf_keras.optimizers"
        )
    return _sum(keras_sum, optimizer, grads_and_vars)
