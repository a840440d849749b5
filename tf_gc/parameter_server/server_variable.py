"""Variables on servers, as workers see them.

In the function that a worker runs, reading a variable is a message from a server. Stock TensorFlow
sends it in full precision, again for each time that the function reads it.
"""

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
    """The tensor sent of a variable, its value on the server, and the bytes sent."""

    variable: ServerVariable
    tensor: tf.Tensor
    value: tf.Tensor
    bytes: int


class _Trace:
    """A function of a replica that is being built; several threads may build some at once."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        # By the ids of graph and variable, as long as nothing writes the variable.
        self.pulled: dict[tuple[int, int], _Pulled] = {}
        # Those that pulls have rounded, by the id of the tensor.
        self.rounded: dict[int, _Pulled] = {}
        # Graphs of loops, each with a variable that was pulled before the loop.
        self.loops: list[tuple[Any, ServerVariable]] = []
        # The ids of handles.
        self.written: set[int] = set()
        self.sent = Sent()
        self._known: dict[Any, int] = {graph: len(graph.get_operations())}

    def forget_written(self) -> None:
        for graph in _compat.graphs_from(tf.compat.v1.get_default_graph(), self.graph):
            operations = graph.get_operations()
            new = operations[self._known.get(graph, 0) :]
            self._known[graph] = len(operations)
            if written := _compat.written_handles(graph, new):
                self.written |= written
                for key, pulled in list(self.pulled.items()):
                    if id(pulled.variable.handle) in written:
                        del self.pulled[key]

    def check_loops(self) -> None:
        """Refuses loops that write what was pulled before them."""
        for graph, variable in self.loops:
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

    def __init__(self, name: str, strategy: Callable[[], Any]) -> None:
        self._name, self._strategy = name, strategy
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
        context, trace = tf.distribute.get_replica_context(), self._trace()
        if (
            trace is None
            or context is None
            or context.strategy is not self._strategy()
            or not variable.dtype.is_floating
            or _compat.caching_scope.in_caching_scope()
        ):
            return None
        graph = tf.compat.v1.get_default_graph()
        trace.forget_written()
        if id(variable.handle) not in trace.written:
            graph = _place(trace, graph, variable)
        key = id(graph), id(variable)
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
        # A vectorized function must not have the side effects of a pull. Of a branch that is built
        # nothing can be changed any more, if what it computes is written (`not_rounded`).
        is_branch = _compat.is_part_of_outer(tf.compat.v1.get_default_graph())
        if is_branch or _compat.is_vectorized() or not self._rounds(variable):
            if not variable.read_by_rows:
                trace.sent += Sent(full, full)
            value = variable.get().read_value()
            return _Pulled(variable, tf.identity(value), value, full)
        with tf.device(variable.device):  # or TensorFlow would read it to the worker
            value = variable.get().read_value()
            half = tf.cast(value, tf.bfloat16) if self._name == BFLOAT16 else None
        if half is not None:
            pulled, sent = tf.cast(half, tf.float32), full // 2
        else:
            variable.cache = variable.cache or Cache(self._strategy(), variable)
            pulled, sent = variable.cache.pulled(value), variable.cache.message_bytes
        trace.sent += Sent(sent, full)
        # The gradient of what was pulled is the gradient of the value on the server. With both as
        # arguments of one `tf.custom_gradient`, the value would be sent to the worker. So the
        # gradient reaches it through a scalar.
        with tf.device(variable.device):
            link = _link(value)
        linked = _joined(tf.stop_gradient(pulled), link)
        trace.rounded[id(linked)] = _Pulled(variable, linked, value, sent)
        return trace.rounded[id(linked)]

    def _rounds(self, variable: ServerVariable) -> bool:
        trained = variable.trainable and not variable.read_by_rows and not _is_small(variable)
        return bool(self._name != FULL and trained and variable.dtype == tf.float32)

    def not_rounded(self, variable: ServerVariable, written: Any) -> Any:
        """Returns the arguments of a write, computed from variables that no pull has rounded.

        Otherwise what was pulled, changed and written back would be rounded in each step.
        Gradients may come from rounded variables.
        """
        trace = self._trace()
        if trace is None or self._name == FULL or _is_small(variable):
            return written
        written = tf.nest.map_structure(_as_tensor, written)
        tensors = [each for each in tf.nest.flatten(written, True) if tf.is_symbolic_tensor(each)]
        open_graphs = list(_compat.graphs_from(tf.compat.v1.get_default_graph(), trace.graph))
        in_functions = {
            id(each.variable.handle): each.variable
            for each in trace.rounded.values()
            if each.tensor.graph not in open_graphs
        }
        for tensor in _compat.computed_from(tensors):
            if id(tensor) in in_functions:
                raise NotImplementedError(
                    f"what is assigned to {path_of(variable)} comes from a tf.function inside the "
                    f"function that strategy.run runs, and that reads "
                    f"{path_of(in_functions[id(tensor)])} as rounded by pull={self._name!r}: "
                    'compute it outside of the tf.function, or pass pull="full"'
                )
            if pulled := trace.rounded.pop(id(tensor), None):
                # The whole value takes the place of the rounded one wherever that has been read.
                with pulled.tensor.graph.as_default(), _compat.stop_recording():
                    exact = tf.identity(pulled.value)
                _compat.replace_uses(pulled.tensor, exact)
                pulled.tensor = exact
                trace.sent += Sent(full_bytes(pulled.variable) - pulled.bytes, 0)
        return written


def _place(trace: _Trace, graph: Any, variable: ServerVariable) -> Any:
    """Returns the graph in which to pull what a graph reads.

    Variables that a loop reads, as a recurrent layer its weights, are pulled once, before it. A
    branch takes what was pulled before it.
    """
    place = graph
    while graph is not trace.graph and _compat.is_part_of_outer(graph):
        is_loop, outer = _compat.is_loop(graph), graph.outer_graph
        if is_loop:
            trace.loops.append((graph, variable))
        if is_loop or (id(outer), id(variable)) in trace.pulled:
            place = outer
        graph = outer
    return place


def _is_small(variable: ServerVariable) -> bool:
    return (variable.shape.num_elements() or 0) < BYPASS_SIZE  # or of an unknown shape


def _as_tensor(written: Any) -> Any:
    """Reads a variable of TensorFlow or Keras; returns all else as it is."""
    is_variable = tf.is_tensor(written) and not isinstance(written, tf.Tensor | tf.IndexedSlices)
    return tf.convert_to_tensor(written) if is_variable else written


@tf.custom_gradient
def _link(value: tf.Tensor) -> Any:
    # A gradient has to have the shape of what it is of, as far as TensorFlow knows that.
    link = tf.compat.v1.placeholder_with_default(tf.zeros([], value.dtype), shape=None)
    return link, lambda upstream: tf.reshape(upstream, value.shape)


@tf.custom_gradient
def _joined(pulled: tf.Tensor, link: tf.Tensor) -> Any:
    del link
    return tf.identity(pulled), lambda upstream: (None, upstream)
