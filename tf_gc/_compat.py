"""The private symbols of TensorFlow and Keras that tf_gc needs, each with its purpose.

No other module imports `tensorflow.python` or `keras.src`. A symbol that moved or
vanished in a release gives one readable `ImportError` here instead of an
`AttributeError` in the middle of a training step.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

_KERAS_3 = 3

# The methods of a Keras optimizer that tf_gc replaces under its strategies.
KERAS_STEPS = ("_all_reduce_sum_gradients", "_backend_apply_gradients")


def _private(module: str, name: str, purpose: str) -> Any:
    """Returns `module.name`, or raises an ImportError that says what it is for."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"tf_gc needs {module}.{name} ({purpose}), which TensorFlow {tf.__version__} with "
            f"Keras {keras.__version__} does not have: {error}. This pair of versions is not "
            "supported; see the README for those that are."
        ) from None


# The strategies whose reduction the compressed ones replace.
MirroredExtended = _private(
    "tensorflow.python.distribute.mirrored_strategy",
    "MirroredExtended",
    "the base class of CompressedMirroredStrategy's implementation",
)

MultiWorkerExtended = _private(
    "tensorflow.python.distribute.collective_all_reduce_strategy",
    "CollectiveAllReduceExtended",
    "the base class of CompressedMultiWorkerMirroredStrategy's implementation",
)

# Values that have one component for each replica.
PerReplica = _private(
    "tensorflow.python.distribute.values", "PerReplica", "to recognize gradients of replicas"
)
Mirrored = _private(
    "tensorflow.python.distribute.values", "Mirrored", "the type of an all-reduced value"
)
DistributedVariable = _private(
    "tensorflow.python.distribute.values", "DistributedVariable", "to recognize variables"
)
regroup = _private(
    "tensorflow.python.distribute.distribute_utils",
    "regroup",
    "to make one distributed value of the results of all replicas",
)

# The stock collectives, whose handling of control flow tf_gc corrects.
CollectiveAllReduce = _private(
    "tensorflow.python.distribute.cross_device_ops",
    "CollectiveAllReduce",
    "the base class of the collective reductions",
)
CollectiveReplicaLauncher = _private(
    "tensorflow.python.distribute.cross_device_utils",
    "CollectiveReplicaLauncher",
    "the base class of what launches collectives",
)

# Inside a loop, TensorFlow builds one graph for its condition and one for its body.
_LOOP_GRAPHS = tuple(
    _private(
        "tensorflow.python.ops.control_flow_v2_func_graphs",
        name,
        "to give the collectives of each iteration of a loop keys of their own",
    )
    for name in ("WhileCondFuncGraph", "WhileBodyFuncGraph")
)

# To know before the first step whether a device can run the native ops.
registered_kernels = _private(
    "tensorflow.python.framework.kernels",
    "get_registered_kernels_for_op",
    "to find out on which devices the native ops run",
)

# To know whether this process has joined a cluster already.
_context = _private(
    "tensorflow.python.eager.context", "context", "to join a cluster of workers once"
)

# To know which variables the replicas wrote in a run.
_resource_inputs = _private(
    "tensorflow.python.framework.auto_control_deps_utils",
    "get_read_write_resource_inputs",
    "to find out which variables an operation writes",
)

# The type of what `tf.function` returns.
_Function = _private(
    "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "Function",
    "to recognize functions that a strategy runs",
)

# Neither merge_call nor the native ops work inside a function compiled by XLA.
in_xla_context = _private(
    "tensorflow.python.ops.control_flow_util",
    "GraphOrParentsInXlaContext",
    "to refuse jit_compile=True with a clear error",
)


def builds_function() -> bool:
    """Returns whether the current graph is that of a `tf.function`, not one for a `Session`."""
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "is_control_flow_graph", False):
        graph = graph.outer_graph
    return bool(graph.building_function)


def is_loop(graph: Any) -> bool:
    """Returns whether a graph is the condition or the body of a `tf.while_loop`."""
    return isinstance(graph, _LOOP_GRAPHS)


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
            _, writes = _resource_inputs(operation)
            written.update(id(tensor) for tensor in writes)
    captures = getattr(graph, "captures", ())  # a graph for a Session uses handles directly
    return written | {id(outer) for outer, inner in captures if id(inner) in written}


def is_function_to_trace(function: Any) -> bool:
    """Returns whether a strategy runs a `tf.function` by tracing all replicas inside of it."""
    # A function that XLA compiles may be called in each replica instead.
    return isinstance(function, _Function) and not function._jit_compile


def clone_function(function: Any, python_function: Callable[..., Any]) -> Any:
    """Returns a `tf.function` of `python_function` with the options of `function`."""
    return function._clone(python_function=python_function)


def replace_call_time_value(placeholder: tf.Tensor, value: Callable[[], tf.Tensor]) -> None:
    """Gives a hidden input, made by `capture_call_time_value`, another value.

    Args:
      placeholder: the hidden input, in the graph of its function.
      value: called at each call of the function, in the caller's graph if it has one.
    """
    captures = placeholder.graph._function_captures
    name = next(key for key, inner in captures.by_ref_internal.items() if inner is placeholder)

    def tensors() -> list[tf.Tensor]:
        return [value()]

    tensors.output_spec = captures.by_ref_external[name].output_spec  # type: ignore[attr-defined]
    captures.by_ref_external[name] = tensors


def is_member(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> bool:
    """Returns whether this process has joined that cluster, as that task, before."""
    joined = getattr(_context(), "_collective_ops_server_def", None)
    if joined is None:
        return False
    task = (joined.job_name, joined.task_index)
    cluster = tf.train.ClusterSpec(joined.cluster)
    return task == (resolver.task_type, resolver.task_id) and cluster == resolver.cluster_spec()


def keras_optimizer_class() -> type:
    """Returns the Keras class that sums gradients over replicas: it has all `KERAS_STEPS`.

    Raises:
      ImportError: if the installed Keras is not Keras 3 on the TensorFlow backend, or sums
        gradients in a way that tf_gc does not know.
    """
    if int(keras.__version__.split(".")[0]) != _KERAS_3 or tf.keras.__version__[0] != "3":
        raise ImportError(
            "tf_gc compresses the gradients of Keras 3; tf.keras is version "
            f"{tf.keras.__version__} and keras is version {keras.__version__}. Unset "
            "TF_USE_LEGACY_KERAS or install keras>=3."
        )
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            f"tf_gc needs Keras on the TensorFlow backend; the backend is "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow."
        )
    optimizer = _private(
        "keras.src.backend.tensorflow.optimizer", "TFOptimizer", "where Keras reduces gradients"
    )
    missing = [name for name in KERAS_STEPS if not hasattr(optimizer, name)]
    if missing:
        raise ImportError(
            f"Keras {keras.__version__} has no {', '.join(missing)}: its optimizers reduce "
            "gradients in a way that tf_gc does not know, and they would silently stay "
            "uncompressed. See the README for the versions that work."
        )
    return optimizer


def keras_layer_class() -> Any:
    """Returns the Keras class that layers and models extend."""
    layer = keras.layers.Layer
    if not (hasattr(layer, "_track_variable") and hasattr(keras.Variable, "_direct_assign")):
        raise ImportError(
            f"Keras {keras.__version__} has no Layer._track_variable or no "
            "Variable._direct_assign: tf_gc would not learn which weights layers update by "
            "themselves, and replicas would drift apart. See the README for the versions that work."
        )
    return layer


def keras_trainer_class() -> Any:
    """Returns the Keras class that trains models on the TensorFlow backend."""
    trainer = _private(
        "keras.src.backend.tensorflow.trainer", "TensorFlowTrainer", "where Keras builds models"
    )
    if not hasattr(trainer, "_maybe_symbolic_build"):
        raise ImportError(
            f"Keras {keras.__version__} has no TensorFlowTrainer._maybe_symbolic_build: it builds "
            "models in a way that tf_gc does not know. See the README for the versions that work."
        )
    return trainer


def keras_epoch_iterator_class() -> Any:
    """Returns the Keras class that iterates over the batches of an epoch."""
    iterator = _private(
        "keras.src.backend.tensorflow.trainer", "TFEpochIterator", "where Keras counts batches"
    )
    if not hasattr(iterator, "reset"):
        raise ImportError(
            f"Keras {keras.__version__} counts the batches of an epoch in a way that tf_gc does "
            "not know, so that workers could wait for each other for ever. See the README for "
            "the versions that work."
        )
    return iterator
