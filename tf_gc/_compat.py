"""The private symbols of TensorFlow and Keras that tf_gc needs, and what for.

No other module imports `tensorflow.python` or `keras.src`. A symbol that moved or
vanished in a release gives one readable `ImportError` here instead of an
`AttributeError` in the middle of a training step.
"""

import importlib
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

# To know before the first step whether a device can run the native ops.
registered_kernels = _private(
    "tensorflow.python.framework.kernels",
    "get_registered_kernels_for_op",
    "to find out on which devices the native ops run",
)

# To know whether this process runs a server already.
_context = _private(
    "tensorflow.python.eager.context", "context", "to join a cluster of workers once"
)

# Neither merge_call nor the native ops work inside a function compiled by XLA.
in_xla_context = _private(
    "tensorflow.python.ops.control_flow_util",
    "GraphOrParentsInXlaContext",
    "to refuse jit_compile=True with a clear error",
)


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
      ImportError: if the Keras at hand is not Keras 3 on the TensorFlow backend, or
        aggregates gradients in another way than tf_gc knows.
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
