"""The private symbols of TensorFlow that tf_gc needs, and what for."""

# mypy: implicit-reexport
# ruff: noqa: F401, N813

from tf_gc._compat.lookup import unsupported

try:
    from tensorflow.python.distribute.collective_all_reduce_strategy import (
        CollectiveAllReduceExtended as MultiWorkerExtended,
    )

    # To know which worker runs a function.
    from tensorflow.python.distribute.coordinator.coordinator_context import (
        get_current_dispatch_context as current_dispatch,
    )
    from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce
    from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher

    # To leave variables on servers to `cache_variable_reads()`.
    from tensorflow.python.distribute.distribute_utils import caching_scope_local as caching_scope
    from tensorflow.python.distribute.distribute_utils import regroup
    from tensorflow.python.distribute.mirrored_strategy import MirroredExtended
    from tensorflow.python.distribute.parameter_server_strategy_v2 import (
        ParameterServerStrategyV2Extended as ParameterServerExtended,
    )

    # A function uses the variable of the worker that runs it by a `HandleSpec`.
    from tensorflow.python.distribute.ps_values import CachingVariable
    from tensorflow.python.distribute.ps_values import PerWorkerVariableSpec as HandleSpec
    from tensorflow.python.distribute.values import DistributedVariable, Mirrored, PerReplica
    from tensorflow.python.eager.context import context
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    # A variable that is read several times in a function is pulled once, but recorded each time.
    from tensorflow.python.eager.record import record_operation, stop_recording
    from tensorflow.python.framework.auto_control_deps import AutomaticControlDependencies
    from tensorflow.python.framework.auto_control_deps_utils import (
        get_read_write_resource_inputs as resource_inputs,
    )

    # To find out before the first step on which devices the native ops run.
    from tensorflow.python.framework.kernels import (
        get_registered_kernels_for_op as registered_kernels,
    )
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext as in_xla_context

    # Inside a loop, TensorFlow builds one graph for its condition and one for its body.
    from tensorflow.python.ops.control_flow_v2_func_graphs import (
        WhileBodyFuncGraph,
        WhileCondFuncGraph,
    )

    # What `tf.vectorized_map` calls: there must be no side effects in a function that it builds.
    from tensorflow.python.ops.parallel_for.control_flow_ops import _pfor_impl as vectorize

    # `tf.Variable` asks the strategy in whose scope it is called, which mirrors the variable and,
    # with several workers, sends its first value to all of them. This is the process's own.
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable as OwnVariable
    from tensorflow.python.ops.resource_variable_ops import variable_accessed

    # A SavedModel's functions have no residuals.
    from tensorflow.python.saved_model.save_context import in_save_context
    from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec
except ImportError as error:
    raise unsupported("a private part of TensorFlow", f": {error}") from None
