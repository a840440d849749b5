"""The hook by which Keras 2's optimizers hand their gradients to a strategy of tf_gc."""

import functools
from typing import Any

from tf_gc.gradients import sum_gradients
from tf_gc.keras.keras2 import private
from tf_gc.keras.strategy import strategy_of_replica
from tf_gc.state.stream import stream_of


def install() -> None:
    """Hooks into Keras 2's optimizers; further calls change nothing.

    Raises:
      ImportError: if the installed tf_keras reduces gradients in a way that tf_gc does not know.
    """
    new, legacy = private.optimizer_classes()
    if hasattr(new.aggregate_gradients, "hooked_by_tf_gc"):
        return
    new.aggregate_gradients = _hooked(new.aggregate_gradients, is_legacy=False)
    legacy._aggregate_gradients = _hooked(legacy._aggregate_gradients, is_legacy=True)


def _hooked(keras_sum: Any, is_legacy: bool) -> Any:
    """Returns a method that sums the gradients of this replica's optimizer over all replicas."""

    @functools.wraps(keras_sum)
    def aggregate_gradients(self: Any, grads_and_vars: Any) -> Any:
        strategy = strategy_of_replica()
        pairs = list(grads_and_vars)
        if strategy is None or all(gradient is None for gradient, _ in pairs):
            return keras_sum(self, pairs)
        if is_legacy and strategy.asynchronous:
            raise NotImplementedError(
                f"{type(self).__name__} is one of tf_keras' legacy optimizers, which would get "
                "what was pushed back from the servers: take that of tf_keras.optimizers"
            )
        sums = sum_gradients(pairs, stream_of(self, getattr(self, "name", type(self).__name__)))
        return [(total, variable) for total, (_, variable) in zip(sums, pairs, strict=True)]

    aggregate_gradients.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    return aggregate_gradients
