"""Pulling variables: from the servers that have them to the worker that computes with them.

In the function that a worker runs, reading a variable is a message from a server. Stock TensorFlow
sends it in full precision, again for each time that the function reads it.
"""

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_gc import _compat, ops
from tf_gc.parameter_server.per_worker import OnServer, OnWorkers

FULL, BFLOAT16, DELTA = "full", "bfloat16", "delta"

# Differences are sent in three bits an element. What rounding leaves of one is in the next.
_CODEC = "three_bit"


class Pull(abc.ABC):
    """Sends the values of variables to workers."""

    @abc.abstractmethod
    def pulled(self, variable: Any, value: tf.Tensor) -> tf.Tensor:
        """Returns a variable's value, on the worker, as it was sent.

        Args:
          variable: a float32 variable on a server.
          value: its value there.
        """


class PullBfloat16(Pull):
    """Sends each element as the nearest bfloat16."""

    def pulled(self, variable: Any, value: tf.Tensor) -> tf.Tensor:
        with tf.device(variable.device):
            sent = tf.cast(value, tf.bfloat16)
        return tf.cast(sent, tf.float32)


class PullDelta(Pull):
    """Sends what has changed since the worker's last pull, in three bits an element.

    The server keeps for each worker what that worker has: both add the same decoded differences to
    the same values. They number the pulls. Where the numbers differ, as after a restart of the
    worker or a message that did not arrive, the server sends the whole variable, and both begin
    with that.
    """

    def __init__(self, strategy: Callable[[], Any]) -> None:
        self._strategy = strategy

    def pulled(self, variable: Any, value: tf.Tensor) -> tf.Tensor:
        if variable.cache is None:
            variable.cache = Cache(self._strategy(), variable)
        return variable.cache.pulled(value)


class Cache:
    """What workers have of a variable.

    Attributes:
      on_worker: the values that workers have.
      minus: for each worker, minus what the server believes that it has: encoding adds that to the
        variable's value, as it adds residuals.
      last_of_worker: the number of the last pull that each worker got; 0 before any.
    """

    def __init__(self, strategy: Any, variable: Any) -> None:
        self._server, self._shape = variable.device, variable.shape
        self.on_worker = OnWorkers(strategy, self._shape)
        self.last_of_worker = OnWorkers(strategy, tf.TensorShape([]), tf.int64)
        self.minus = OnServer(strategy, self._server, self._shape)
        self._last_of_server = OnServer(strategy, self._server, tf.TensorShape([]), tf.int64)

    def pulled(self, value: tf.Tensor) -> tf.Tensor:
        last = self.last_of_worker.read()
        with tf.device(self._server):
            last_sent = self._last_of_server.read()
            follows = tf.logical_and(tf.equal(last, last_sent), last > 0)
            # The numbers of messages that got lost are not used again.
            number = tf.maximum(last, last_sent) + 1
            message, whole = tf.cond(
                follows, lambda: self._difference(value), lambda: self._whole(value)
            )
            self._last_of_server.assign(number)
        now = tf.cond(follows, lambda: self._gone_on(message), lambda: self._begun(whole))
        self.last_of_worker.assign(number)
        return now

    def _difference(self, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        before = self.minus.read()
        message = ops.encode([value], [self.minus.handle()], _CODEC)
        (sent,) = ops.decode([message], [self._empty()], _CODEC)
        # What encoding has left there is not needed.
        self.minus.assign(tf.where(tf.math.is_finite(sent), before - sent, before))
        return message, tf.zeros([0])

    def _whole(self, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        self.minus.assign(-_finite(value))
        return tf.zeros([1, 0], tf.int64), tf.reshape(value, [-1])

    def _begun(self, whole: tf.Tensor) -> tf.Tensor:
        value = tf.reshape(whole, self._shape)
        self.on_worker.assign(_finite(value))
        return value

    def _gone_on(self, message: tf.Tensor) -> tf.Tensor:
        (sent,) = ops.decode([message], [self._empty()], _CODEC)
        before = self.on_worker.read()
        now = before + sent
        # An element that is not finite now may be later; both sides keep what it was before.
        self.on_worker.assign(tf.where(tf.math.is_finite(sent), now, before))
        return now

    def _empty(self) -> tf.Tensor:
        return tf.raw_ops.Empty(shape=self._shape.as_list(), dtype=tf.float32)


def _finite(value: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.math.is_finite(value), value, tf.zeros_like(value))


class ServerVariable(_compat.CachingVariable):
    """A variable on a server.

    Where a replica reads it, the value is pulled once until something is written, and gradients are
    those of the value as it was sent.

    Attributes:
      cache: what workers have of it, if they pull differences.
      read_by_rows: whether it is a table of embeddings, of which a lookup gets some rows from the
        server. What reads all of it gets that in full precision.
    """

    def __init__(self, variable: Any, pulls: "Pulls") -> None:
        """Initializes the object.

        Args:
          variable: the variable.
          pulls: how replicas read it.
        """
        super().__init__(variable)
        self._tf_gc_pulls = pulls
        self.cache: Cache | None = None
        self.read_by_rows = False

    def read_value(self) -> tf.Tensor:
        pulled = self._tf_gc_pulls.read(self)
        return super().read_value() if pulled is None else pulled

    def value(self) -> tf.Tensor:
        pulled = self._tf_gc_pulls.read(self)
        return super().value() if pulled is None else pulled

    def assign(self, *args: Any, **kwargs: Any) -> Any:
        self._tf_gc_pulls.note_write()
        return super().assign(*args, **kwargs)

    def assign_add(self, *args: Any, **kwargs: Any) -> Any:
        self._tf_gc_pulls.note_write()
        return super().assign_add(*args, **kwargs)

    def assign_sub(self, *args: Any, **kwargs: Any) -> Any:
        self._tf_gc_pulls.note_write()
        return super().assign_sub(*args, **kwargs)

    def _dense_var_to_tensor(
        self, dtype: Any = None, name: str | None = None, as_ref: bool = False
    ) -> Any:
        pulled = self._tf_gc_pulls.read(self)
        if pulled is None or (dtype is not None and dtype != pulled.dtype):
            return super()._dense_var_to_tensor(dtype, name, as_ref)
        return pulled


class Pulls:
    """Pulls variables for the replicas of a strategy.

    Attributes:
      name: how, one of `FULL`, `BFLOAT16` and `DELTA`.
    """

    def __init__(self, name: str, strategy: Callable[[], Any], smallest: int) -> None:
        """Initializes the object.

        Args:
          name: how variables are pulled.
          strategy: returns the strategy.
          smallest: variables with fewer elements are pulled in full precision.
        """
        self.name = name
        self._strategy = strategy
        self._smallest = smallest
        self._pull: Pull | None = None
        if name == BFLOAT16:
            self._pull = PullBfloat16()
        elif name == DELTA:
            self._pull = PullDelta(strategy)
        self._writes = 0

    def note_write(self) -> None:
        """Notes that variables are written, or that a function is built that writes some."""
        self._writes += 1

    def read(self, variable: ServerVariable) -> tf.Tensor | None:
        """Returns what a replica reads of a variable; `None` leaves that to TensorFlow."""
        context = tf.distribute.get_replica_context()
        if (
            context is None
            or context.strategy is not self._strategy()
            or tf.executing_eagerly()
            or not variable.dtype.is_floating
        ):
            return None
        graph = tf.compat.v1.get_default_graph()
        reads: dict[Any, Any] = vars(context).setdefault("_tf_gc_reads", {})
        known = reads.get((id(graph), id(variable)))
        if known is None or known[0] != self._writes:
            known = reads[id(graph), id(variable)] = (self._writes, graph, self._pulled(variable))
        result: tf.Tensor = known[2]
        return result

    def pulls(self, variable: ServerVariable) -> bool:
        """Returns whether a variable is sent otherwise than in full precision."""
        return bool(
            self._pull is not None
            and variable.trainable
            and not variable.read_by_rows
            and variable.dtype == tf.float32
            and variable.shape.is_fully_defined()
            and variable.shape.num_elements() >= self._smallest
        )

    def _pulled(self, variable: ServerVariable) -> tf.Tensor:
        if self._pull is None or not self.pulls(variable):
            return variable.get().read_value()
        with tf.device(variable.device):  # or TensorFlow would read it to the worker
            value = variable.get().read_value()
        return _with_gradient_of(value, self._pull.pulled(variable, value), variable.device)


def _with_gradient_of(value: tf.Tensor, pulled: tf.Tensor, server: str) -> tf.Tensor:
    """Returns what was pulled; its gradient is that of the value on the server.

    With both as arguments of one `tf.custom_gradient`, the value would be sent to the worker. So
    the gradient reaches it through a scalar.
    """
    with tf.device(server):
        link = _link(value)
    return _joined(tf.stop_gradient(pulled), link)


@tf.custom_gradient
def _link(value: tf.Tensor) -> Any:
    # A gradient has to have the shape of what it is of, as far as TensorFlow knows that.
    link = tf.compat.v1.placeholder_with_default(tf.zeros([], value.dtype), shape=None)
    return link, lambda upstream: tf.reshape(upstream, value.shape)


@tf.custom_gradient
def _joined(pulled: tf.Tensor, link: tf.Tensor) -> Any:
    del link
    return tf.identity(pulled), lambda upstream: (None, upstream)
