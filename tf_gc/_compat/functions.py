"""Functions that use the private parts of TensorFlow's graphs, functions and contexts."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_gc._compat import symbols


def is_loop(graph: Any) -> bool:
    """Returns whether a graph is the condition or the body of a `tf.while_loop`."""
    return isinstance(graph, symbols.WhileCondFuncGraph | symbols.WhileBodyFuncGraph)


def is_part_of_outer(graph: Any) -> bool:
    """Returns whether a graph belongs to a loop or a branch, and not to a function."""
    return bool(getattr(graph, "is_control_flow_graph", False))


def graphs_from(graph: Any, last: Any = None) -> Iterator[Any]:
    """Yields a graph, the one that it was built in, and so on, up to the last one."""
    while graph is not None:
        yield graph
        graph = None if graph is last else getattr(graph, "outer_graph", None)


def loop_counter(graph: Any) -> tf.Tensor:
    """Returns the number of the iteration, an integer scalar from 0, in a graph of a loop."""
    counter = graph.inputs[0]  # the first of a loop's variables is TensorFlow's counter
    assert counter.shape.rank == 0
    assert counter.dtype.is_integer
    return counter


def captures(graph: Any) -> Sequence[tuple[Any, tf.Tensor]]:
    """Returns what a graph uses of others, each with its hidden input: nothing in a `tf.Graph`."""
    return getattr(graph, "captures", ())


def written_handles(graph: tf.Graph, operations: Sequence[tf.Operation]) -> set[int]:
    """Returns the `id()` of each variable's handle that some operations of a graph may write."""
    written: set[int] = set()
    for operation in operations:
        reads = operation.type == "ReadVariableOp"  # as a third of all do
        if not reads and any(tensor.dtype == tf.resource for tensor in operation.inputs):
            _, writes = symbols.resource_inputs(operation)
            written.update(id(tensor) for tensor in writes)
    return written | {id(outer) for outer, inner in captures(graph) if id(inner) in written}


def note_writes(variable: tf.Variable, note: Callable[[], None]) -> None:
    """Lets all methods of a variable that write it, eagerly or in a graph, call a function."""
    variable._tf_gc_note = note
    kind: Any = type(variable)
    variable.__class__ = _noting(kind)


@functools.cache
def _noting(kind: Any) -> type:
    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(variable: Any, *args: Any, **kwargs: Any) -> Any:
            variable._tf_gc_note()
            return method(variable, *args, **kwargs)

        return noted

    # Methods that change some elements end with the last one.
    methods = (kind.assign, kind.assign_add, kind.assign_sub, kind._lazy_read)
    return type(kind.__name__, (kind,), {each.__name__: noting(each) for each in methods})


def computed_from(values: Sequence[Any]) -> Iterator[tf.Tensor]:
    """Yields the tensors, of the current graph and those around it, that values come from.

    Gradients of a tape are not followed.
    """
    graphs = graphs_from(tf.compat.v1.get_default_graph())
    outer_of = {id(inner): outer for graph in graphs for outer, inner in captures(graph)}
    seen: set[int] = set()
    waiting = [*values]
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen or not tf.is_symbolic_tensor(tensor) or tensor.dtype == tf.resource:
            continue
        seen.add(id(tensor))
        yield tensor
        if "gradient_tape/" not in tensor.op.name:  # the name scope of a tape's computations
            waiting += [*tensor.op.inputs, outer_of.get(id(tensor))]


def replace_uses(tensor: tf.Tensor, other: tf.Tensor) -> None:
    """Lets all operations that use a tensor of a graph use another one of that graph."""
    for operation in tensor.consumers():
        for index, each in enumerate(operation.inputs):
            if each is tensor:
                operation._update_input(index, other)


def is_vectorized() -> bool:
    """Returns whether `tf.vectorized_map` is building the function that it vectorizes."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not symbols.vectorize.__code__:
        frame = frame.f_back
    return frame is not None


def record_read(variable: Any, value: tf.Tensor) -> None:
    """Tells all tapes that are active that a tensor was read from a variable."""
    symbols.variable_accessed(variable)
    # Forward accumulators know the handle as this function's hidden input, gradient tapes as it is.
    for handle in (tf.convert_to_tensor(variable.handle), variable.handle):
        symbols.record_operation("ReadVariableOp", [value], [handle], lambda g: [g], lambda t: [t])


def replace_call_time_value(placeholder: tf.Tensor, value: Callable[[], tf.Tensor]) -> None:
    """Gives a hidden input, made by `capture_call_time_value`, another value.

    `value` is called at each call of the function, in the caller's graph if it has one.
    """
    captures = placeholder.graph._function_captures
    name = next(key for key, inner in captures.by_ref_internal.items() if inner is placeholder)

    def tensors() -> list[tf.Tensor]:
        return [value()]

    tensors.output_spec = captures.by_ref_external[name].output_spec  # type: ignore[attr-defined]
    captures.by_ref_external[name] = tensors


def is_member(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> bool:
    """Returns whether this process has joined that cluster, as that task, before."""
    joined = symbols.context()._collective_ops_server_def
    if joined is None:
        return False
    task = (joined.job_name, joined.task_index)
    cluster = tf.train.ClusterSpec(joined.cluster)
    return task == (resolver.task_type, resolver.task_id) and cluster == resolver.cluster_spec()


def value_on_worker(made: Any) -> Any:
    """Returns the variable that a worker makes; `None` after its death, until it is made again."""
    try:
        made._wait_and_maybe_error()
    except tf.errors.CancelledError:
        return None
    return made._get_values()


def cond(pred: tf.Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Returns what `true_fn` or `false_fn` returns: a `tf.cond` without waiting for all of it.

    They return tensors, variables (which are read) or `None`, in the same structure.

    In a `tf.function`, TensorFlow lets every output of a branch wait for all side effects of that
    branch (automatic control dependencies), and so none of many sums of gradients can be used
    before the last one has arrived. Here the side effects of a branch happen in the same order, and
    before whatever comes after the conditional and touches the same variables, but an output waits
    only for what it is computed from.
    """
    # Elsewhere there are no dependencies to get rid of.
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if graph is None or not graph._add_control_dependencies:
        return tf.cond(pred, true_fn, false_fn)
    graph._add_control_dependencies = False  # TensorFlow adds none to the branches
    try:
        return tf.cond(pred, _with_dependencies(true_fn), _with_dependencies(false_fn))
    finally:
        graph._add_control_dependencies = True


def _with_dependencies(function: Callable[[], Any]) -> Callable[[], Any]:
    def branch() -> Any:
        with symbols.AutomaticControlDependencies() as dependencies:
            # A variable, too, is read in its turn among the side effects.
            results = tf.nest.map_structure(
                lambda result: None if result is None else tf.identity(result), function()
            )
        # Ops that have no influence on a result have to run, too.
        graph = tf.compat.v1.get_default_graph()
        graph.control_outputs.extend(dependencies.ops_which_must_run)
        return results

    return branch
