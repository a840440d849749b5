"""Functions that use the private parts of TensorFlow's graphs, functions and contexts."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_gc._compat import symbols


def is_loop(graph: Any) -> bool:
    """Returns whether a graph is the condition or the body of a `tf.while_loop`."""
    return isinstance(graph, symbols.LOOP_GRAPHS)


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


def written_handles(graph: tf.Graph, operations: Sequence[tf.Operation]) -> set[int]:
    """Returns the `id()` of each variable's handle that some operations of a graph may write."""
    written: set[int] = set()
    for operation in operations:
        if any(tensor.dtype == tf.resource for tensor in operation.inputs):
            _, writes = symbols.resource_inputs(operation)
            written.update(id(tensor) for tensor in writes)
    return written | {id(outer) for outer, inner in graph.captures if id(inner) in written}


def computed_from(tensors: Sequence[tf.Tensor]) -> Iterator[tf.Tensor]:
    """Yields the tensors that others, of functions being built, are computed from.

    Gradients of a tape are not followed. The handle of a variable is among the tensors if a
    function of TensorFlow computes from the variable.
    """
    seen: set[int] = set()
    captures: dict[int, dict[int, Any]] = {}  # by the ids of graph and hidden input
    waiting = list(tensors)
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        yield tensor
        if not tf.is_symbolic_tensor(tensor):
            continue
        graph, operation = tensor.graph, tensor.op
        if "gradient_tape/" in operation.name:  # TensorFlow's name scope of what a tape computes
            continue
        if id(graph) not in captures:
            pairs = getattr(graph, "captures", ())
            captures[id(graph)] = {id(inner): outer for outer, inner in pairs}
        calls = any(attribute.type == "func" for attribute in operation.op_def.attr)
        waiting += [each for each in operation.inputs if calls or each.dtype != tf.resource]
        if id(tensor) in captures[id(graph)]:
            waiting.append(captures[id(graph)][id(tensor)])


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


def in_caching_scope() -> bool:
    """Returns whether variables on servers keep the values that they had when they were read."""
    return bool(symbols.caching_scope.in_caching_scope())


def record_read(variable: Any, value: tf.Tensor) -> None:
    """Tells all tapes that are active that a tensor was read from a variable."""
    symbols.variable_accessed(variable)
    # Forward accumulators know the handle as this function's hidden input, gradient tapes as it is.
    for handle in (tf.convert_to_tensor(variable.handle), variable.handle):
        symbols.record_operation("ReadVariableOp", [value], [handle], lambda g: [g], lambda t: [t])


def is_function_to_trace(function: Any) -> bool:
    """Returns whether a strategy runs a `tf.function` by tracing all replicas inside of it."""
    # A function that XLA compiles may be called in each replica instead.
    return isinstance(function, symbols.Function) and not function._jit_compile


def clone_function(function: Any, python_function: Callable[..., Any]) -> Any:
    """Returns a `tf.function` of `python_function` with the options of `function`."""
    return function._clone(python_function=python_function)


def at_each_call(act: Callable[[], None]) -> None:
    """Acts now or, in a function that is being built, before each of its calls, eagerly."""

    def acted() -> tf.Tensor:
        act()
        return tf.constant(True)

    if tf.executing_eagerly():
        act()
    else:
        graph = tf.compat.v1.get_default_graph()
        graph.capture_call_time_value(acted, tf.TensorSpec([], tf.bool))


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


def exchange(keys: Sequence[str], mine: str, text: str, timeout_seconds: float) -> list[str]:
    """Returns the texts of all processes of a cluster, which they tell each other by no collective.

    `keys` has one for each process, for this one exchange, of which `mine` is this process's.
    Raises `tf.errors.OpError` if the others do not come: `DeadlineExceededError` if that takes too
    long.
    """
    context = symbols.context()
    context.set_config_key_value(mine, text)
    context.wait_at_barrier(keys[0], int(timeout_seconds * 1000))
    return [context.get_config_key_value(key) for key in keys]


def make_on_workers(strategy: Any, make: Callable[[], Any]) -> Sequence[Any]:
    """Returns stand-ins for variables, for `value_on_worker`: each worker makes one, also anew."""
    made: Sequence[Any] = strategy._cluster_coordinator._create_per_worker_variables(make)._values
    return made


def value_on_worker(made: Any) -> Any:
    """Returns a worker's variable once it is made; `None` after a death, until it is made again."""
    try:
        made._wait_and_maybe_error()
    except tf.errors.CancelledError:
        return None
    return made._get_values()


def handle_at_call(
    key: Any, example: tf.Tensor, handle_of: Callable[[int], tf.Tensor]
) -> tf.Tensor:
    """Returns a hidden input of the function that is built: the handle of a worker's variable.

    Calls with the same key return the same input. `example` is a handle of a variable with that
    shape and dtype; `handle_of` takes the number of the worker that runs the function.
    """
    graph = tf.compat.v1.get_default_graph()
    # A loop or a branch is part of the function around it.
    while is_part_of_outer(graph):
        graph = graph.outer_graph

    def of_caller() -> tf.Tensor:
        dispatch = symbols.current_dispatch()
        if dispatch is None:
            raise RuntimeError(
                "this function has a part on each worker: run it by ClusterCoordinator.schedule"
            )
        return handle_of(dispatch.worker_index)

    return graph.capture_call_time_value(of_caller, symbols.HandleSpec(value=example), key=key)
