"""The private attributes of TensorFlow's classes that tf_gc relies on, each with its purpose.

tf_gc reads, replaces or overrides them. If TensorFlow no longer calls a method, tf_gc's override
does nothing: that is as bad as a method that vanished.
"""

from tf_gc._compat.lookup import Attributes, require

_BY_CLASS: dict[str, dict[str, str]] = {
    "tensorflow.python.distribute.mirrored_strategy.MirroredStrategy": {
        "_collective_key_base": "to give each strategy a range of keys for itself"
    },
    "tensorflow.python.distribute.mirrored_strategy.MirroredExtended": {
        "_call_for_each_replica": "to average the state of layers after the replicas have run",
        "_collective_keys": "the keys of a strategy's collectives",
        "_communication_options": "the options of a strategy's collectives",
        "_cross_device_ops": "to put CompressedAllReduce in front of what reduces",
        "_num_replicas_in_sync": "how many replicas a strategy has on all workers",
        "_devices": "the devices of the replicas",
        "_make_collective_ops_with_fallbacks": "to give collectives keys of their own",
    },
    "tensorflow.python.distribute.collective_all_reduce_strategy.CollectiveAllReduceStrategy": {
        "_collective_key_base": "to give each strategy a range of keys for itself"
    },
    "tensorflow.python.distribute.collective_all_reduce_strategy.CollectiveAllReduceExtended": {
        "_cluster_resolver": "to know which worker is the chief",
        "_enable_check_health": "to join a cluster of workers once",
        "_get_variable_creator_initial_value": "to start residuals without a broadcast",
        "_host_cross_device_ops": "to let workers tell each other numbers",
        "_initialize_local": "to let an evaluator be alone",
        "_initialize_local_devices": "to take all logical CPU devices for replicas",
        "_initialize_multi_worker": "to join a cluster of workers once",
        "_num_workers": "how many workers there are",
        "_reduce_to": "to reduce structures, as Keras does",
        "_std_server_started": "to join a cluster of workers once",
        "_update_config_proto": "to limit the wait for other workers, and to send large chunks",
        "_worker_device": "the device of this worker",
    },
    "tensorflow.python.distribute.parameter_server_strategy_v2.ParameterServerStrategyV2Extended": {
        "_batch_reduce_to": "to push gradients to the servers in compressed form",
        "_container_strategy": "to find the strategy of variables on servers",
        "_call_for_each_replica": "to know in which graph replicas run",
        "_create_variable": "to give each server as many shards of a variable",
        "_create_variable_round_robin": "to give each server as much of the variables",
        "_variable_count": "to choose the server of a variable",
        "_create_var_creator": "to make variables that workers pull in compressed form",
        "_num_workers": "to keep for each worker what it was sent",
    },
    "tensorflow.python.distribute.ps_values.CachingVariable": {
        "_dense_var_to_tensor": "to pull variables in compressed form"
    },
    "tensorflow.python.distribute.parameter_server_strategy_v2.ParameterServerStrategyV2": {
        "_cluster_coordinator": "to keep residuals on workers",
        "_should_use_with_coordinator": "to let tf_keras train under the strategy",
    },
    "tensorflow.python.distribute.coordinator.cluster_coordinator.ClusterCoordinator": {
        "_create_per_worker_variables": "to keep residuals on workers"
    },
    "tensorflow.python.distribute.coordinator.values.PerWorkerValues": {
        "_values": "to find the residuals of a worker"
    },
    "tensorflow.python.distribute.coordinator.values.RemoteVariable": {
        "_get_values": "to find the residuals of a worker",
        "_wait_and_maybe_error": "to wait for the residuals of a worker",
    },
    "tensorflow.python.distribute.cross_device_ops.CrossDeviceOps": {
        "_all_reduce": "to hand reductions in replicas to the stock ops",
        "_gather_implementation": "to hand gathers to the stock ops",
        "_num_between_graph_workers": "to know how many workers the stock ops reduce over",
    },
    "tensorflow.python.distribute.cross_device_ops.CollectiveAllReduce": {
        "_collective_keys": "the keys of a group's collectives",
        "_devices": "the devices of a group's local replicas",
        "_group_size": "how many replicas a group has",
        "_launchers": "to replace what launches collectives",
        "_lock": "to let no collective start amid another thread's",
        "_options": "the options of a group's collectives",
    },
    "tensorflow.python.distribute.cross_device_utils.CollectiveReplicaLauncher": {
        "_all_gather": "to gather messages",
        "_device": "the device of a replica",
        "_get_ordering_token": "to order the all-to-all among other collectives",
        "_group_key": "the key of the replicas that meet in a collective",
        "_group_size": "how many replicas meet in a collective",
        "_next_instance_key": "to give collectives in control flow keys of their own",
        "_options": "the options of a replica's collectives",
        "_ordering_token": "to let all groups of a GPU share one order of collectives",
    },
    "tensorflow.python.trackable.base.Trackable": {
        "_copy_trackable_to_cpu": "to save residuals asynchronously",
        "_gather_saveables_for_checkpoint": "to save residuals in checkpoints",
    },
    "tensorflow.python.eager.context.Context": {
        "abort_collective_ops": "to end with a worker that has died",
        "_collective_ops_server_def": "to know which cluster this process has joined",
        "coordination_service": "to join a cluster again where programs have switched it off",
        "get_config_key_value": "to join a cluster again with all other workers",
        "set_config_key_value": "to join a cluster again with all other workers",
        "wait_at_barrier": "to join a cluster again with all other workers",
    },
    "tensorflow.python.eager.polymorphic_function.polymorphic_function.Function": {
        "_clone": "to trace the replicas and the averaging of layers' state as one function",
        "_jit_compile": "to know whether XLA compiles a function",
    },
    "tensorflow.python.ops.resource_variable_ops.BaseResourceVariable": {
        "_lazy_read": "to learn which weights layers update; replicas would drift apart"
    },
    "tensorflow.python.framework.ops.Operation": {
        "_update_input": "to compute what is written from variables that no pull has rounded"
    },
    "tensorflow.python.framework.auto_control_deps.AutomaticControlDependencies": {
        "ops_which_must_run": "to run what has side effects in a branch"
    },
    "tensorflow.python.framework.func_graph.FuncGraph": {
        "_add_control_dependencies": "to let no output of a branch wait for all of the branch",
        "_function_captures": "to replace the hidden inputs of a function",
        "control_outputs": "to run what has side effects in a branch",
        "is_control_flow_graph": "to recognize graphs of loops and branches",
        "outer_graph": "to find the function around a loop or a branch",
    },
    "tensorflow.core.function.capture.capture_container.FunctionCaptures": {
        "by_ref_external": "to replace the hidden inputs of a function",
        "by_ref_internal": "to find the hidden inputs of a function",
    },
}

ATTRIBUTES = tuple(Attributes(path, purposes) for path, purposes in _BY_CLASS.items())


def require_attributes() -> None:
    """Checks, for a new strategy, that the installed TensorFlow has all these attributes."""
    require(*ATTRIBUTES)
