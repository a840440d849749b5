"""Variables on servers, as the function that a worker runs reads and writes them.

Reading: a variable is pulled once until it is written, and before a loop that reads it. It is
rounded only outside of branches and of functions inside the function.
Writing: no value is written that was computed, other than by gradients, from a rounded one.
"""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.gradients import path_of
from tf_gc.parameter_server.pull import Cache
from tf_gc.parameter_server.traffic import Sent, full_bytes
from tf_gc.params.kinds import BYPASS_SIZE

FULL, BFLOAT16, DELTA = "full", "bfloat16", "delta"


class ServerVariable(_compat.CachingVariable):
    """A variable on a server, which replicas pull once until it is written.

    Gradients are taken at the value as it was sent. A lookup gets rows of a table (`read_by_rows`)
    from the server; reading all of it is in full precision.
    """

    def __init__(self, variable: Any, pulls: "Pulls") -> None:
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

    def _dense_var_to_tensor(
        self, dtype: Any = None, name: str | None = None, as_ref: bool = False
    ) -> Any:
        pulled = self._tf_gc_pulls.read(self)
        if pulled is None or (dtype is not None and dtype != pulled.dtype):
            return super()._dense_var_to_tensor(dtype, name, as_ref)
        return pulled


def _writing(name: str) -> Callable[..., Any]:
    def write(self: ServerVariable, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._tf_gc_pulls.not_rounded(self, (args, kwargs))
        return getattr(super(ServerVariable, self), name)(*args, **kwargs)

    return write


for _name in dir(tf.Variable):
    if _name.startswith(("assign", "scatter", "batch_scatter")):
        setattr(ServerVariable, _name, _writing(_name))


@dataclasses.dataclass
class _Pulled:
    """The tensor that was sent of a variable, its value on the server, and the bytes sent."""

    tensor: tf.Tensor
    value: tf.Tensor
    bytes: int


class _Trace:
    """A function of a replica that is being built; several threads may build some at once."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        # By the ids of graph and variable, and how often the variable had been written.
        self.pulled: dict[tuple[int, int, int], _Pulled] = {}
        self.rounded: dict[int, _Pulled] = {}  # by the id of the tensor
        self.writes = collections.Counter[int]()  # by the id of the variable's handle
        self.sent = Sent()
        # Graphs of loops, each with a variable that was pulled before the loop.
        self._loops: list[tuple[Any, ServerVariable]] = []
        self._known = collections.Counter({graph: len(graph.get_operations())})

    def find_writes(self) -> None:
        for graph in _compat.graphs_from(tf.compat.v1.get_default_graph(), self.graph):
            operations = graph.get_operations()
            self.writes.update(_compat.written_handles(graph, operations[self._known[graph] :]))
            self._known[graph] = len(operations)

    def place(self, graph: Any, variable: ServerVariable) -> Any:
        """Returns the graph in which to pull what a graph reads, if nothing has written it.

        Variables that a loop reads, as a recurrent layer its weights, are pulled once, before it. A
        branch takes what was pulled before it.
        """
        place = graph
        while graph is not self.graph and _compat.is_part_of_outer(graph):
            is_loop, outer = _compat.is_loop(graph), graph.outer_graph
            if is_loop:
                self._loops.append((graph, variable))
            if is_loop or (id(outer), id(variable), 0) in self.pulled:
                place = outer
            graph = outer
        return place

    def check_loops(self) -> None:
        """Refuses loops that write what was pulled before them."""
        for graph, variable in self._loops:
            if id(variable.handle) in _compat.written_handles(graph, graph.get_operations()):
                raise NotImplementedError(
                    f"{path_of(variable)} is read, and then written, in a loop inside the function "
                    "that strategy.run runs; workers pull what such a loop reads once, before it. "
                    "Put the loop around strategy.run"
                )


class Pulls:
    """Pulls variables for the replicas of a strategy, by the name of a way such as `DELTA`.

    `sent` has the bytes of the function whose trace ended last, without rows of tables.
    """

    def __init__(self, way: str, strategy: Callable[[], Any]) -> None:
        self._way, self._strategy = way, strategy
        self._traces: dict[Any, _Trace] = {}
        self.sent = Sent()

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Says that replicas run in the block, each in the graph that is the default one now."""
        if tf.executing_eagerly() or self._trace() is not None:
            yield  # a replica may run others, as for a scaled loss
            return
        graph = tf.compat.v1.get_default_graph()
        trace = self._traces[graph] = _Trace(graph)
        try:
            yield
            trace.check_loops()
            self.sent = trace.sent
        finally:
            del self._traces[graph]

    def _trace(self) -> _Trace | None:
        """Returns the function of a replica that the current graph is, or is inside of."""
        if tf.executing_eagerly():
            return None
        graphs = _compat.graphs_from(tf.compat.v1.get_default_graph())
        return next((self._traces[graph] for graph in graphs if graph in self._traces), None)

    def read(self, variable: ServerVariable) -> tf.Tensor | None:
        """Returns what a replica reads of a variable; `None` leaves that to TensorFlow."""
        trace = self._trace()
        if (
            trace is None
            or tf.distribute.in_cross_replica_context()
            or not variable.dtype.is_floating
            or _compat.caching_scope.in_caching_scope()
        ):
            return None
        trace.find_writes()
        graph, writes = tf.compat.v1.get_default_graph(), trace.writes[id(variable.handle)]
        if not writes:
            graph = trace.place(graph, variable)
        key = id(graph), id(variable), writes
        with graph.as_default():
            with _compat.stop_recording():
                if key not in trace.pulled:
                    trace.pulled[key] = self._pull(trace, variable)
                result = tf.identity(trace.pulled[key].tensor)
            # The current tapes have not seen the first read. They differentiate as for a read.
            _compat.record_read(variable.get(), result)
        return result

    def _pull(self, trace: _Trace, variable: ServerVariable) -> _Pulled:
        full = full_bytes(variable)
        # Of an inner function nothing can be changed once it is built (`not_rounded`), and a
        # vectorized one must not have the side effects of a pull.
        is_inner = tf.compat.v1.get_default_graph() is not trace.graph
        if is_inner or _compat.is_vectorized() or not self._rounds(variable):
            if not variable.read_by_rows:
                trace.sent += Sent(full, full)
            value = variable.get().read_value()
            return _Pulled(value, value, full)
        with tf.device(variable.device):  # or TensorFlow would read it to the worker
            value = variable.get().read_value()
            half = tf.cast(value, tf.bfloat16) if self._way == BFLOAT16 else None
        if half is not None:
            pulled = _Pulled(tf.cast(half, tf.float32), value, full // 2)
        else:
            variable.cache = variable.cache or Cache(self._strategy(), variable)
            tensor = variable.cache.pulled(value)
            pulled = _Pulled(tensor, value, variable.cache.message_bytes)
        trace.sent += Sent(pulled.bytes, full)
        trace.rounded[id(pulled.tensor)] = pulled
        return pulled

    def _rounds(self, variable: ServerVariable) -> bool:
        trained = variable.trainable and not variable.read_by_rows and not _is_small(variable)
        return bool(self._way != FULL and trained and variable.dtype == tf.float32)

    def not_rounded(self, variable: ServerVariable, written: Any) -> Any:
        """Returns the arguments of a write, computed from variables that no pull has rounded.

        Otherwise what was pulled, changed and written back would be rounded in each step.
        Gradients may come from rounded variables.
        """
        trace = self._trace()
        if trace is None or self._way == FULL or _is_small(variable):
            return written
        written = tf.nest.map_structure(_as_tensor, written)
        for tensor in _compat.computed_from(tf.nest.flatten(written, expand_composites=True)):
            if pulled := trace.rounded.pop(id(tensor), None):
                # The whole value takes the place of the rounded one wherever that has been read.
                with trace.graph.as_default(), _compat.stop_recording():
                    pulled.tensor = tf.identity(pulled.value)
                _compat.replace_uses(tensor, pulled.tensor)
                trace.sent += Sent(full_bytes(pulled.value) - pulled.bytes, 0)
        return written


def _is_small(variable: ServerVariable) -> bool:
    return (variable.shape.num_elements() or 0) < BYPASS_SIZE  # or of an unknown shape


def _as_tensor(written: Any) -> Any:
    """Reads a variable of TensorFlow or Keras; returns all else as it is."""
    is_variable = tf.is_tensor(written) and not isinstance(written, tf.Tensor | tf.IndexedSlices)
    return tf.convert_to_tensor(written) if is_variable else written
