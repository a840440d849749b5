"""The private symbols of TensorFlow that tf_gc needs, each with its purpose."""

from tf_gc._compat.lookup import symbol

MirroredExtended = symbol(
    "tensorflow.python.distribute.mirrored_strategy.MirroredExtended",
    "the base class of CompressedMirroredStrategy's implementation",
)
MultiWorkerExtended = symbol(
    "tensorflow.python.distribute.collective_all_reduce_strategy.CollectiveAllReduceExtended",
    "the base class of CompressedMultiWorkerMirroredStrategy's implementation",
)

PerReplica = symbol(
    "tensorflow.python.distribute.values.PerReplica", "to recognize gradients of replicas"
)
Mirrored = symbol(
    "tensorflow.python.distribute.values.Mirrored", "the type of an all-reduced value"
)
DistributedVariable = symbol(
    "tensorflow.python.distribute.values.DistributedVariable", "to recognize variables"
)
regroup = symbol(
    "tensorflow.python.distribute.distribute_utils.regroup",
    "to make one distributed value of the results of all replicas",
)

# `tf.Variable` asks the strategy in whose scope it is called, which mirrors the variable and, with
# several workers, sends its first value to all of them.
OwnVariable = symbol(
    "tensorflow.python.ops.resource_variable_ops.ResourceVariable",
    "to make variables that are this process's own affair",
)

CollectiveAllReduce = symbol(
    "tensorflow.python.distribute.cross_device_ops.CollectiveAllReduce",
    "the base class of the collective reductions",
)
CollectiveReplicaLauncher = symbol(
    "tensorflow.python.distribute.cross_device_utils.CollectiveReplicaLauncher",
    "the base class of what launches collectives",
)

# Inside a loop, TensorFlow builds one graph for its condition and one for its body.
LOOP_GRAPHS = tuple(
    symbol(
        f"tensorflow.python.ops.control_flow_v2_func_graphs.{name}",
        "to give the collectives of each iteration of a loop keys of their own",
    )
    for name in ("WhileCondFuncGraph", "WhileBodyFuncGraph")
)

registered_kernels = symbol(
    "tensorflow.python.framework.kernels.get_registered_kernels_for_op",
    "to find out before the first step on which devices the native ops run",
)
context = symbol("tensorflow.python.eager.context.context", "to join a cluster of workers once")
resource_inputs = symbol(
    "tensorflow.python.framework.auto_control_deps_utils.get_read_write_resource_inputs",
    "to find out which variables the replicas wrote in a run",
)
AutomaticControlDependencies = symbol(
    "tensorflow.python.framework.auto_control_deps.AutomaticControlDependencies",
    "to let sums of gradients be used before the last one has arrived",
)
Function = symbol(
    "tensorflow.python.eager.polymorphic_function.polymorphic_function.Function",
    "to recognize functions that a strategy runs",
)
in_xla_context = symbol(
    "tensorflow.python.ops.control_flow_util.GraphOrParentsInXlaContext",
    "to refuse jit_compile=True, where merge_call and the native ops fail, with a clear error",
)

# A variable that is read several times in a function is pulled once, but recorded each time.
record_operation = symbol(
    "tensorflow.python.eager.record.record_operation",
    "to give each read of a variable on a server its gradient",
)
stop_recording = symbol(
    "tensorflow.python.eager.record.stop_recording",
    "to keep pulling a variable out of its gradient",
)
variable_accessed = symbol(
    "tensorflow.python.ops.resource_variable_ops.variable_accessed",
    "to let tapes watch variables on servers",
)
caching_scope = symbol(
    "tensorflow.python.distribute.distribute_utils.caching_scope_local",
    "to leave variables on servers to cache_variable_reads()",
)
vectorize = symbol(
    "tensorflow.python.ops.parallel_for.control_flow_ops._pfor_impl",
    "to have no side effects in a function that TensorFlow vectorizes",
)
