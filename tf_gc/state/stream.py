"""Streams: sources of gradients, each an optimizer or a call in a user's loop.

All that is kept between steps belongs to a stream: the residual of one loss must not be sent with
the gradient of another, which may be applied at another rate.
"""

import contextlib
import contextvars
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any


class Stream:
    """A source of gradients. Two may have the same name in checkpoints and the log."""

    def __init__(self, name: str) -> None:
        self.name = name


_lock = threading.Lock()
_by_owner: "weakref.WeakKeyDictionary[Any, Stream]" = weakref.WeakKeyDictionary()
_by_name: dict[str, Stream] = {}
_current: contextvars.ContextVar[Stream] = contextvars.ContextVar("stream")


def stream_of(owner: Any, name: str) -> Stream:
    """Returns the stream of an optimizer, which ends with it and gets this name if it is new."""
    with _lock:
        if owner not in _by_owner:
            _by_owner[owner] = Stream(name)
        return _by_owner[owner]


def named_stream(name: str) -> Stream:
    """Returns the stream that calls in a user's loops share by a name; it never ends."""
    with _lock:
        return _by_name.setdefault(name, Stream(name))


def stream_of_call(replica_context: Any, variables: Sequence[Any]) -> Stream:
    """Returns the stream of a call without a name, in a loop of the user's.

    It has the number of the call among those of a `strategy.run`, which has one context, that
    reduce one of its variables: two losses of a shared trunk are two streams, and calls for two
    models may change places.
    """
    calls: dict[int, int] = vars(replica_context).setdefault("_tf_gc_calls", {})
    number = max((calls.get(id(variable), 0) for variable in variables), default=0)
    calls.update((id(variable), number + 1) for variable in variables)
    return named_stream(f"call {number + 1}" if number else "")


@contextlib.contextmanager
def reducing(stream: Stream) -> Iterator[None]:
    """Says whose gradients are reduced in the block."""
    token = _current.set(stream)
    try:
        yield
    finally:
        _current.reset(token)


def current_stream() -> Stream:
    """Returns the stream whose gradients are being reduced; the one without a name by default."""
    return _current.get(None) or named_stream("")
