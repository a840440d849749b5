"""How a hook takes the place of a method of Keras."""

import functools
from collections.abc import Callable
from typing import Any


def hook(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Lets a function take the place of a method: it gets that method, and then its arguments."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return function(method, *args, **kwargs)

    setattr(owner, name, hooked)
