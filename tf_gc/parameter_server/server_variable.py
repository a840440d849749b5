"""Variables on servers, as workers see them.

In the function that a worker runs, reading a variable is a message from a server. Stock TensorFlow
sends it in full precision, again for each time that the function reads it.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.gradients import path_of
from tf_gc.parameter_server.pull import Cache, Pull, PullBfloat16, PullDelta
from tf_gc.parameter_server.traffic import Sent

FULL, BFLOAT16, DELTA = "full", "bfloat16", "delta"


class ServerVariable(_compat.CachingVariable):
    """A variable on a server.

    Where a replica reads it, the value is pulled once until something is written, and gradients are
    those of the value as it was sent.

    Attributes:
      cache: what workers have of it, if they pull differences.
      loops: the graphs of loops that read it, and before which it is pulled.
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
        self.loops: weakref.WeakSet[Any] = weakref.WeakSet()
        self.read_by_rows = False

    def read_value(self) -> tf.Tensor:
        pulled = self._tf_gc_pulls.read(self)
        return super().read_value() if pulled is None else pulled

    def value(self) -> tf.Tensor:
        pulled = self._tf_gc_pulls.read(self)
        return super().value() if pulled is None else pulled

    def assign(self, *args: Any, **kwargs: Any) -> Any:
        self._tf_gc_pulls.note_write(self)
        return super().assign(*args, **kwargs)

    def assign_add(self, *args: Any, **kwargs: Any) -> Any:
        self._tf_gc_pulls.note_write(self)
        return super().assign_add(*args, **kwargs)

    def assign_sub(self, *args: Any, **kwargs: Any) -> Any:
        self._tf_gc_pulls.note_write(self)
        return super().assign_sub(*args, **kwargs)

    def _dense_var_to_tensor(
        self, dtype: Any = None, name: str | None = None, as_ref: bool = False
    ) -> Any:
        pulled = self._tf_gc_pulls.read(self)
        if pulled is None or (dtype is not None and dtype != pulled.dtype):
            return super()._dense_var_to_tensor(dtype, name, as_ref)
        return pulled


class _Trace:
    """A function of a replica that is being built; several threads may build some at once.

    Attributes:
      graph: that of the replica; `None` where no replica runs.
      writes: how many writes were noted.
      sent: the bytes so far.
    """

    def __init__(self, graph: Any = None) -> None:
        self.graph = graph
        self.writes = 0
        self.sent = Sent()


class Pulls:
    """Pulls variables for the replicas of a strategy.

    Attributes:
      sent: the bytes of the function whose trace ended last, without rows of tables.
    """

    def __init__(
        self, name: str, strategy: Callable[[], Any], smallest: int, as_stock: bool
    ) -> None:
        """Initializes the object.

        Args:
          name: how variables are pulled, one of `FULL`, `BFLOAT16` and `DELTA`.
          strategy: returns the strategy.
          smallest: variables with fewer elements are pulled in full precision.
          as_stock: whether replicas read variables as under the stock strategy.
        """
        self._as_stock = as_stock
        self._strategy = strategy
        self._smallest = smallest
        self._pull: Pull | None = None
        if name == BFLOAT16:
            self._pull = PullBfloat16()
        elif name == DELTA:
            self._pull = PullDelta(strategy)
        self._outside = _Trace()
        self._traces: dict[Any, _Trace] = {}
        self.sent = Sent()

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Says that replicas run in the block, each in the graph that is the default one now."""
        graph = tf.compat.v1.get_default_graph()
        trace = self._traces[graph] = _Trace(graph)
        try:
            yield
            self.sent = trace.sent
        finally:
            del self._traces[graph]

    def _trace(self) -> _Trace:
        """Returns the function of a replica that the current graph is, or is inside of."""
        graph = tf.compat.v1.get_default_graph()
        while graph is not None and graph not in self._traces:
            graph = getattr(graph, "outer_graph", None)
        return self._traces.get(graph, self._outside)

    def note_write(self, variable: ServerVariable | None = None) -> None:
        """Notes that variables are written, or that a function is built that writes some.

        Args:
          variable: which one; `None` if there may be several.

        Raises:
          NotImplementedError: if it is read in the same loop, and so is pulled before it.
        """
        self._trace().writes += 1
        graph = tf.compat.v1.get_default_graph()
        while variable is not None and _compat.is_part_of_outer(graph):
            if graph in variable.loops:
                raise NotImplementedError(
                    f"{path_of(variable)} is read, and then written, in a loop inside the function "
                    "that strategy.run runs; workers pull what such a loop reads once, before it. "
                    "Put the loop around strategy.run"
                )
            graph = graph.outer_graph

    def read(self, variable: ServerVariable) -> tf.Tensor | None:
        """Returns what a replica reads of a variable; `None` leaves that to TensorFlow."""
        context = tf.distribute.get_replica_context()
        if (
            self._as_stock
            or context is None
            or context.strategy is not self._strategy()
            or tf.executing_eagerly()
            or not variable.dtype.is_floating
        ):
            return None
        graph = tf.compat.v1.get_default_graph()
        trace = self._trace()
        if not trace.writes:
            graph = self._before_loops(trace, graph, variable)
        reads: dict[Any, Any] = vars(context).setdefault("_tf_gc_reads", {})
        known = reads.get((id(graph), id(variable)))
        if known is None or known[0] != trace.writes:
            with graph.as_default():
                pulled, sent = self._pulled(variable)
            trace.sent += sent
            known = reads[id(graph), id(variable)] = (trace.writes, graph, pulled)
        result: tf.Tensor = known[2]
        return result

    def _before_loops(self, trace: _Trace, graph: Any, variable: ServerVariable) -> Any:
        """Returns the graph around all loops of a replica's function that the graph is part of.

        What a loop reads, as a recurrent layer its weights, is pulled once, before the loop.
        """
        outside = graph
        while graph is not trace.graph and _compat.is_part_of_outer(graph):
            if _compat.is_loop(graph):
                variable.loops.add(graph)
                outside = graph.outer_graph
            graph = graph.outer_graph
        return outside

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

    def _pulled(self, variable: ServerVariable) -> tuple[tf.Tensor, Sent]:
        """Returns what a replica gets of a variable, and what that sends."""
        full = variable.shape.num_elements() * variable.dtype.size
        if self._pull is None or not self.pulls(variable):
            sent = Sent(0, 0) if variable.read_by_rows else Sent(full, full)
            return variable.get().read_value(), sent
        with tf.device(variable.device):  # or TensorFlow would read it to the worker
            value = variable.get().read_value()
        pulled = self._pull.pulled(variable, value)
        sent = Sent(self._pull.bytes(variable), full)
        return _with_gradient_of(value, pulled, variable.device), sent


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
