"""The private symbols of TensorFlow that tf_gc needs, each with its purpose."""

from typing import Any

from tf_gc._compat.lookup import symbol


def _symbol(path: str, purpose: str) -> Any:
    return symbol(f"tensorflow.python.{path}", purpose)


MirroredExtended = _symbol(
    "distribute.mirrored_strategy.MirroredExtended",
    "the base class of CompressedMirroredStrategy's implementation",
)
MultiWorkerExtended = _symbol(
    "distribute.collective_all_reduce_strategy.CollectiveAllReduceExtended",
    "the base class of CompressedMultiWorkerMirroredStrategy's implementation",
)

PerReplica = _symbol("distribute.values.PerReplica", "to recognize gradients of replicas")
Mirrored = _symbol("distribute.values.Mirrored", "the type of an all-reduced value")
DistributedVariable = _symbol("distribute.values.DistributedVariable", "to recognize variables")
regroup = _symbol(
    "distribute.distribute_utils.regroup",
    "to make one distributed value of the results of all replicas",
)

# `tf.Variable` asks the strategy in whose scope it is called, which mirrors the variable and, with
# several workers, sends its first value to all of them.
OwnVariable = _symbol(
    "ops.resource_variable_ops.ResourceVariable",
    "to make variables that are this process's own affair",
)

CollectiveAllReduce = _symbol(
    "distribute.cross_device_ops.CollectiveAllReduce", "the base class of the collective reductions"
)
CollectiveReplicaLauncher = _symbol(
    "distribute.cross_device_utils.CollectiveReplicaLauncher",
    "the base class of what launches collectives",
)

# Inside a loop, TensorFlow builds one graph for its condition and one for its body.
LOOP_GRAPHS = tuple(
    _symbol(
        f"ops.control_flow_v2_func_graphs.{name}",
        "to give the collectives of each iteration of a loop keys of their own",
    )
    for name in ("WhileCondFuncGraph", "WhileBodyFuncGraph")
)

SaveableObject = _symbol(
    "training.saving.saveable_object.SaveableObject", "to save residuals in checkpoints"
)
SaveSpec = _symbol(
    "training.saving.saveable_object.SaveSpec", "to sum residuals when a checkpoint is written"
)
in_save_context = _symbol(
    "saved_model.save_context.in_save_context", "to keep residuals out of a SavedModel's functions"
)

registered_kernels = _symbol(
    "framework.kernels.get_registered_kernels_for_op",
    "to find out before the first step on which devices the native ops run",
)
context = _symbol("eager.context.context", "to join a cluster of workers once")
resource_inputs = _symbol(
    "framework.auto_control_deps_utils.get_read_write_resource_inputs",
    "to find out which variables the replicas wrote in a run",
)
AutomaticControlDependencies = _symbol(
    "framework.auto_control_deps.AutomaticControlDependencies",
    "to let sums of gradients be used before the last one has arrived",
)
Function = _symbol(
    "eager.polymorphic_function.polymorphic_function.Function",
    "to recognize functions that a strategy runs",
)
in_xla_context = _symbol(
    "ops.control_flow_util.GraphOrParentsInXlaContext",
    "to refuse jit_compile=True, where merge_call and the native ops fail, with a clear error",
)

# A variable that is read several times in a function is pulled once, but recorded each time.
record_operation = _symbol(
    "eager.record.record_operation", "to give each read of a variable on a server its gradient"
)
stop_recording = _symbol(
    "eager.record.stop_recording", "to keep pulling a variable out of its gradient"
)
variable_accessed = _symbol(
    "ops.resource_variable_ops.variable_accessed", "to let tapes watch variables on servers"
)
caching_scope = _symbol(
    "distribute.distribute_utils.caching_scope_local",
    "to leave variables on servers to cache_variable_reads()",
)
vectorize = _symbol(
    "ops.parallel_for.control_flow_ops._pfor_impl",
    "to have no side effects in a function that TensorFlow vectorizes",
)

ParameterServerExtended = _symbol(
    "distribute.parameter_server_strategy_v2.ParameterServerStrategyV2Extended",
    "the base class of CompressedParameterServerStrategy's implementation",
)
CachingVariable = _symbol(
    "distribute.ps_values.CachingVariable", "the base class of variables that workers pull"
)
HandleSpec = _symbol(
    "distribute.ps_values.PerWorkerVariableSpec",
    "to let a function use the variable of the worker that runs it",
)
current_dispatch = _symbol(
    "distribute.coordinator.coordinator_context.get_current_dispatch_context",
    "to know which worker runs a function",
)
