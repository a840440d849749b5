"""The private parts of TensorFlow's parameter servers, and functions that use them."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc._compat.functions import is_part_of_outer
from tf_gc._compat.lookup import symbol

ParameterServerExtended = symbol(
    "tensorflow.python.distribute.parameter_server_strategy_v2.ParameterServerStrategyV2Extended",
    "the base class of CompressedParameterServerStrategy's implementation",
)

CachingVariable = symbol(
    "tensorflow.python.distribute.ps_values.CachingVariable",
    "the base class of variables that workers pull in compressed form",
)

_HandleSpec = symbol(
    "tensorflow.python.distribute.ps_values.PerWorkerVariableSpec",
    "to let a function use the variable of the worker that runs it",
)

_current_dispatch = symbol(
    "tensorflow.python.distribute.coordinator.coordinator_context.get_current_dispatch_context",
    "to know which worker runs a function",
)


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
        dispatch = _current_dispatch()
        if dispatch is None:
            raise RuntimeError(
                "this function has a part on each worker: run it by ClusterCoordinator.schedule"
            )
        return handle_of(dispatch.worker_index)

    return graph.capture_call_time_value(of_caller, _HandleSpec(value=example), key=key)
