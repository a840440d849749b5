"""Workers run the same number of steps, whatever the size of each one's dataset.

Keras counts the batches of the dataset that it is given, and ends the epoch after that many steps.
Under a multi-worker strategy each worker counts its own dataset. If the counts differ, a worker
that ends its epoch early leaves the others waiting in a step in which it does not take part. With
this hook, all workers run as many steps as the longest dataset has batches. TensorFlow gives empty
batches to workers that have run out of data.
"""

import functools
from typing import Any

from tf_gc.keras.keras3 import private
from tf_gc.keras.strategy import KerasStrategy


def install() -> None:
    """Hooks into Keras' iterator over an epoch; further calls change nothing.

    Raises:
      ImportError: if the installed Keras counts batches in a way that tf_gc does not know.
        Workers could then wait for each other for ever.
    """
    iterator_class = private.epoch_iterator_class()
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
    if not isinstance(strategy, KerasStrategy):
        return
    # Keras counted the whole dataset, and not the part of it that this worker gets.
    unsharded = getattr(iterator._distributed_dataset, "unsharded", False)
    batches = None if unsharded else iterator._num_batches
    # The first one is called steps in evaluate and predict, and validation_steps in fit.
    arguments = (
        f"steps_per_epoch={iterator.steps_per_epoch}, "
        f"steps_per_execution={iterator.steps_per_execution}"
    )
    iterator._num_batches = strategy.longest_epoch(batches, arguments)
