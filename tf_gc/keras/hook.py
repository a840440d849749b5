"""How a function of tf_gc takes the place of a method of Keras."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from tf_gc.keras.strategy import strategy_of_replica

Method: TypeAlias = Callable[..., Any]


@functools.cache  # so that a further strategy hooks nothing again
def hook(owner: Any, name: str, function: Method) -> None:
    """Lets a function take the place of a method: it gets that method, and then its arguments."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return function(method, *args, **kwargs)

    setattr(owner, name, hooked)


@functools.cache
def hook_in_replica(owner: Any, name: str, function: Method) -> None:
    """Does so in replicas of a tf_gc strategy, which the function gets before all else."""

    def in_replica(method: Method, *args: Any, **kwargs: Any) -> Any:
        strategy = strategy_of_replica()
        if strategy is None:
            return method(*args, **kwargs)
        return function(strategy, method, *args, **kwargs)

    hook(owner, name, in_replica)
