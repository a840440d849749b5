"""The interface through which the hooks into Keras use a strategy, and what all hooks need."""

import abc
import functools
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import keras
import tensorflow as tf
from absl import logging

from tf_gc.cluster.workers import Workers
from tf_gc.gradients import path_of
from tf_gc.keras.multi_worker.private_files import PathT, private_path
from tf_gc.observe.report import Report


class KerasStrategy(abc.ABC):
    """The base class of strategies for which Keras is hooked; others leave Keras as it is.

    A dataset that such a strategy distributes has a true attribute `unsharded` if every worker sees
    all its data.
    """

    clip_after_sum: bool = False  # whether optimizers clip sums of gradients, not a replica's own
    asynchronous: bool = False  # whether workers share variables on servers, and step by themselves
    # Gets each Keras variable that replicas update by themselves (`add`); `None` if such variables
    # stay as they are.
    layer_state: Any = None
    extended: Any
    unused: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()  # whose scope nobody has entered

    def scope(self) -> Any:
        """Returns the context in which models and optimizers are made, as every strategy does."""
        self.unused.discard(self)
        return super().scope()  # type: ignore[misc]

    @property
    @abc.abstractmethod
    def workers(self) -> Workers:
        """The workers of the job; one if this process trains alone."""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the job's files: the chief, or worker 0 without one.

        So does a process that trains alone, unless it is an evaluator, and a coordinator.
        """
        return self.workers.is_chief

    def write_path(self, path: PathT) -> PathT:
        """Returns where this worker may write what the chief writes to `path`.

        Methods of Keras models and Keras' callbacks take care of this themselves. It is for all
        else, such as checkpoints of TensorFlow or `keras.saving.save_model`: every worker has to
        write them, since that may take collectives, and reads them from `path` itself.

        ```python
        checkpoint = tf.train.Checkpoint(model=model, compression=strategy.compression_state)
        checkpoint.restore(tf.train.latest_checkpoint("checkpoints"))
        manager = tf.train.CheckpointManager(checkpoint, strategy.write_path("checkpoints"), 3)
        ```

        Returns:
          On the chief `path`. On other workers a path with the same name in a temporary
          directory, the same one for the same `path`, that is removed when the process ends.
        """
        return path if self.is_chief else private_path(path)

    @abc.abstractmethod
    def compresses_rows_of(self, variable: Any) -> bool:
        """Returns whether a gradient of a variable is compressed if it is `tf.IndexedSlices`."""

    @property
    @abc.abstractmethod
    def traffic(self) -> Any:
        """The bytes of a step; `None` until a compressed step was traced."""

    def report(self) -> Report:
        """Returns what was measured of steps; NotImplementedError under parameter servers."""
        raise NotImplementedError(
            "tf_gc measures no steps under parameter servers; print(strategy.schedule) says what "
            "is pushed how"
        )

    def measure_every(self, steps: int) -> None:
        """Measures one compressed step in `steps` from now on; fails as `report` does."""
        self.report()


def strategy_of_replica() -> KerasStrategy | None:
    """Returns the strategy of the replica that runs now; `None` outside of a replica."""
    strategy = tf.distribute.get_strategy()
    if tf.distribute.in_cross_replica_context() or not isinstance(strategy, KerasStrategy):
        return None
    return strategy


_warn = functools.cache(logging.warning)  # says each text once


def check_scope(optimizer: Any, variables: list[Any]) -> None:
    """Raises RuntimeError if the optimizer or the step is in a scope, and variables are not."""
    warn_of_forgotten_scope()
    for strategy in (optimizer._distribution_strategy, tf.distribute.get_strategy()):
        if isinstance(strategy, KerasStrategy):
            created = strategy.extended.variable_created_in_scope
            where = f"made outside of the scope of the {type(strategy).__name__}: make model and "
            where += "optimizer, and call compile(), inside of `with strategy.scope():`"
            if paths := [path_of(v) for v in map(tf_variable, variables) if not created(v)]:
                raise RuntimeError(f"{', '.join(paths)}: {where}")
            if not created(tf_variable(optimizer._iterations)):
                _warn(f"tf_gc: each replica counts the steps of {optimizer.name}, {where}")


def warn_of_forgotten_scope() -> None:
    """Warns of a step outside of all strategies while one of tf_gc was made and never used."""
    if KerasStrategy.unused and not tf.distribute.has_strategy():
        KerasStrategy.unused.clear()
        logging.warning(
            "tf_gc: training runs outside of strategy.scope(), so on one device and without "
            "compression: make model and optimizer inside of `with strategy.scope():`"
        )


def workers_of(model: Any) -> Workers:
    """Returns the workers that train a Keras model; only this one under strategies of others."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy.workers if isinstance(strategy, KerasStrategy) else Workers()


def is_variable(value: Any) -> bool:
    """Returns whether a value is a variable of Keras 3; tf_keras has TensorFlow's own."""
    return isinstance(value, keras.Variable)


def tf_variable(variable: Any) -> Any:
    """Returns the `tf.Variable` of a Keras variable, with its path; any other value unchanged."""
    if not is_variable(variable):
        return variable
    variable.value._tf_gc_path = variable.path  # for `path_of`
    return variable.value


@functools.cache  # so that a further strategy hooks nothing again
def hook(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Lets a function take the place of a method: it gets that method, and then its arguments."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return function(method, *args, **kwargs)

    setattr(owner, name, hooked)
