"""The interface through which the hooks into Keras use a strategy."""

import abc
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import tensorflow as tf

from tf_gc.cluster.workers import Workers
from tf_gc.gradients import gradient_of
from tf_gc.keras.multi_worker.private_files import PathT, private_path
from tf_gc.observe.report import Report
from tf_gc.params import CompressionParams
from tf_gc.reducers.reducer import Sender, Spec
from tf_gc.schedule import make_schedule
from tf_gc.steps.compression_state import CompressionState


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

    def scope(self) -> AbstractContextManager[Any]:
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

    @property
    @abc.abstractmethod
    def compression_params(self) -> CompressionParams:
        """The params, which say what is compressed and how, as a value, even if given as a dict."""

    @property
    @abc.abstractmethod
    def senders(self) -> Mapping[Spec, Sender | str]:
        """What sends the gradients of each spec of the params, or why the stock ops sum them."""

    def compresses_rows_of(self, variable: tf.Variable) -> bool:
        """Returns whether a gradient of a variable is compressed if it is `tf.IndexedSlices`."""
        rows = gradient_of(variable, variable.dtype, sparse=True, earlier=set())
        return bool(make_schedule(self.compression_params, [rows], self.senders).buckets)

    @property
    @abc.abstractmethod
    def compression_state(self) -> CompressionState:
        """The residuals; trackable, so it can go into a `tf.train.Checkpoint`."""

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


def strategy_of(model: Any) -> KerasStrategy | None:
    """Returns the strategy that trains a Keras model; `None` for those of others."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy if isinstance(strategy, KerasStrategy) else None


def workers_of(model: Any) -> Workers:
    """Returns the workers that train a Keras model; only this one under strategies of others."""
    strategy = strategy_of(model)
    return Workers() if strategy is None else strategy.workers
