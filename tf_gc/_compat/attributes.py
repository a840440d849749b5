"""The private attributes of TensorFlow's classes that tf_gc relies on, each with its purpose.

tf_gc reads, replaces or overrides them. If TensorFlow no longer calls a method, tf_gc's override
does nothing: that is as bad as a method that vanished.
"""

from tf_gc._compat.lookup import Attributes, require

_KEYS = "to give each strategy a range of keys for itself"
_JOIN = "to join a cluster of workers once"
_JOIN_AGAIN = "to join a cluster again with all other workers"
_WORKERS_RESIDUALS = "to find the residuals of a worker"
_SIDE_EFFECTS = "to run what has side effects in a branch"

# By the class, in tensorflow.python.
_OF_PYTHON: dict[str, dict[str, str]] = {
    "distribute.mirrored_strategy.MirroredStrategy": {"_collective_key_base": _KEYS},
    "distribute.mirrored_strategy.MirroredExtended": {
        "_call_for_each_replica": "to average the state of layers after the replicas have run",
        "_collective_keys _make_collective_ops_with_fallbacks": "to give collectives keys",
        "_communication_options": "the options of a strategy's collectives",
        "_cross_device_ops": "to put CompressedAllReduce in front of what reduces",
        "_num_replicas_in_sync": "how many replicas a strategy has on all workers",
        "_devices": "the devices of the replicas",
    },
    "distribute.collective_all_reduce_strategy.CollectiveAllReduceStrategy": {
        "_collective_key_base": _KEYS
    },
    "distribute.collective_all_reduce_strategy.CollectiveAllReduceExtended": {
        "_cluster_resolver": "to know which worker is the chief",
        "_enable_check_health _initialize_multi_worker _std_server_started": _JOIN,
        "_get_variable_creator_initial_value": "to start residuals without a broadcast",
        "_host_cross_device_ops": "to let workers tell each other numbers",
        "_initialize_local": "to let an evaluator be alone",
        "_initialize_local_devices": "to take all logical CPU devices for replicas",
        "_num_workers": "how many workers there are",
        "_reduce_to": "to reduce structures, as Keras does",
        "_update_config_proto": "to limit the wait for other workers, and to send large chunks",
        "_worker_device": "the device of this worker",
    },
    "distribute.parameter_server_strategy_v2.ParameterServerStrategyV2Extended": {
        "_batch_reduce_to": "to push gradients to the servers in compressed form",
        "_container_strategy": "to find the strategy of variables on servers",
        "_call_for_each_replica": "to know in which graph replicas run",
        "_create_variable": "to give each server as many shards of a variable",
        "_create_variable_round_robin": "to give each server as much of the variables",
        "_variable_count": "to choose the server of a variable",
        "_create_var_creator": "to make variables that workers pull in compressed form",
        "_num_workers": "to keep for each worker what it was sent",
    },
    "distribute.ps_values.CachingVariable": {
        "_dense_var_to_tensor": "to pull variables in compressed form"
    },
    "distribute.parameter_server_strategy_v2.ParameterServerStrategyV2": {
        "_cluster_coordinator": "to keep residuals on workers",
        "_should_use_with_coordinator": "to let tf_keras train under the strategy",
    },
    "distribute.coordinator.cluster_coordinator.ClusterCoordinator": {
        "_create_per_worker_variables": "to keep residuals on workers"
    },
    "distribute.coordinator.values.PerWorkerValues": {"_values": _WORKERS_RESIDUALS},
    "distribute.coordinator.values.RemoteVariable": {
        "_get_values _wait_and_maybe_error": _WORKERS_RESIDUALS
    },
    "distribute.cross_device_ops.CrossDeviceOps": {
        "_all_reduce _gather_implementation": "to hand reductions and gathers to the stock ops",
        "_num_between_graph_workers": "to know how many workers the stock ops reduce over",
    },
    "distribute.cross_device_ops.CollectiveAllReduce": {
        "_collective_keys _options": "the keys and options of a group's collectives",
        "_devices _group_size": "the local replicas of a group, and how many it has",
        "_launchers": "to replace what launches collectives",
        "_lock": "to let no collective start amid another thread's",
    },
    "distribute.cross_device_utils.CollectiveReplicaLauncher": {
        "_all_gather": "to gather messages",
        "_device _options": "where and how a replica's collectives run",
        "_get_ordering_token _ordering_token": "to let all groups of a GPU share one order",
        "_group_key _group_size": "the replicas that meet in a collective",
        "_next_instance_key": "to give collectives in control flow keys of their own",
    },
    "trackable.base.Trackable": {
        "_copy_trackable_to_cpu": "to save residuals asynchronously",
        "_gather_saveables_for_checkpoint": "to save residuals in checkpoints",
    },
    "eager.context.Context": {
        "abort_collective_ops": "to end with a worker that has died",
        "_collective_ops_server_def": "to know which cluster this process has joined",
        "coordination_service": "to join a cluster again where programs have switched it off",
        "get_config_key_value set_config_key_value wait_at_barrier": _JOIN_AGAIN,
    },
    "eager.polymorphic_function.polymorphic_function.Function": {
        "_clone": "to trace the replicas and the averaging of layers' state as one function",
        "_jit_compile": "to know whether XLA compiles a function",
    },
    "ops.resource_variable_ops.BaseResourceVariable": {
        "_lazy_read": "to learn which weights layers update; replicas would drift apart"
    },
    "framework.ops.Operation": {
        "_update_input": "to compute what is written from variables that no pull has rounded"
    },
    "framework.auto_control_deps.AutomaticControlDependencies": {
        "ops_which_must_run": _SIDE_EFFECTS
    },
    "framework.func_graph.FuncGraph": {
        "_add_control_dependencies": "to let no output of a branch wait for all of the branch",
        "_function_captures": "to replace the hidden inputs of a function",
        "control_outputs": _SIDE_EFFECTS,
        "is_control_flow_graph outer_graph": "to find the function around a loop or a branch",
    },
}
_CAPTURES = Attributes(
    "tensorflow.core.function.capture.capture_container.FunctionCaptures",
    {"by_ref_external by_ref_internal": "to replace the hidden inputs of a function"},
)
_MINE = (Attributes(f"tensorflow.python.{path}", groups) for path, groups in _OF_PYTHON.items())
ATTRIBUTES = (*_MINE, _CAPTURES)


def require_attributes() -> None:
    """Checks, for a new strategy, that the installed TensorFlow has all these attributes."""
    require(*ATTRIBUTES)
