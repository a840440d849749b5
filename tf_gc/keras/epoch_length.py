"""Workers run the same number of steps, whatever the size of each one's dataset.

Keras counts the batches of the dataset that it is given, and ends the epoch after that many steps.
Under a multi-worker strategy each worker counts its own dataset. If the counts differ, a worker
that ends its epoch early leaves the others waiting in a step in which it does not take part. With
this hook, all workers run as many steps as the longest dataset has batches. TensorFlow gives empty
batches to workers that have run out of data.
"""

import functools
from typing import Any, Protocol, runtime_checkable

from tf_gc import _compat


@runtime_checkable
class LengthAgreement(Protocol):
    """A strategy whose workers can agree on the length of an epoch.

    If every worker sees all data of a distributed dataset, the dataset's attribute `unsharded` is
    true.
    """

    def longest_epoch(self, batches: int | None) -> int | None:
        """Returns the largest of all workers' numbers of batches, `None` if one is unknown."""


def install() -> None:
    """Hooks into Keras' iterator over an epoch; further calls change nothing."""
    iterator_class = _compat.keras_epoch_iterator_class()
    keras_init, keras_reset = iterator_class.__init__, iterator_class.reset
    if hasattr(keras_init, "hooked_by_tf_gc"):
        return

    @functools.wraps(keras_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        keras_init(self, *args, **kwargs)
        _agree(self)

    @functools.wraps(keras_reset)
    def reset(self: Any) -> None:
        keras_reset(self)
        if hasattr(self, "_distributed_dataset"):  # not while Keras constructs it
            _agree(self)

    init.hooked_by_tf_gc = True  # type: ignore[attr-defined]
    iterator_class.__init__ = init
    iterator_class.reset = reset


def _agree(iterator: Any) -> None:
    strategy = iterator._distribute_strategy
    if not isinstance(strategy, LengthAgreement):
        return
    # Keras counted the whole dataset, and not the part of it that this worker gets.
    unsharded = getattr(iterator._distributed_dataset, "unsharded", False)
    batches = None if unsharded else iterator._num_batches
    iterator._num_batches = strategy.longest_epoch(batches)
