"""The private attributes of TensorFlow's classes that tf_gc relies on, each with its purpose.

tf_gc reads, replaces or overrides them. If TensorFlow no longer calls a method, tf_gc's override
does nothing: that is as bad as a method that vanished.
"""

from tf_gc._compat.lookup import Attributes, require

_KEYS = "to give each strategy a range of keys for itself"
_RESIDUALS = "to keep residuals on workers"

# By the class, in tensorflow.python.
_OF_PYTHON: dict[str, dict[str, str]] = {
    "distribute.mirrored_strategy.MirroredStrategy": {"_collective_key_base": _KEYS},
    "distribute.mirrored_strategy.MirroredExtended": {
        "_call_for_each_replica": "to average the state of layers after the replicas have run",
        "_collective_keys _communication_options _cross_device_ops _devices _num_replicas_in_sync "
        "_make_collective_ops_with_fallbacks": "to reduce gradients in another way",
    },
    "distribute.collective_all_reduce_strategy.CollectiveAllReduceStrategy": {
        "_collective_key_base": _KEYS
    },
    "distribute.collective_all_reduce_strategy.CollectiveAllReduceExtended": {
        "_cluster_resolver _num_workers": "to know the workers, and which is the chief",
        "_enable_check_health _initialize_multi_worker _std_server_started": "to join a cluster",
        "_get_variable_creator_initial_value": "to start residuals without a broadcast",
        "_host_cross_device_ops": "to let workers tell each other numbers",
        "_initialize_local": "to let an evaluator be alone",
        "_initialize_local_devices _worker_device": "to take all logical CPU devices for replicas",
        "_reduce_to": "to reduce structures, as Keras does",
        "_update_config_proto": "to limit the wait for other workers, and to send large chunks",
    },
    "distribute.parameter_server_strategy_v2.ParameterServerStrategyV2Extended": {
        "_batch_reduce_to _call_for_each_replica": "to push gradients in compressed form",
        "_container_strategy _create_var_creator": "to pull variables in compressed form",
        "_create_variable _create_variable_round_robin _variable_count": "to give each server as "
        "much of the variables",
        "_num_workers": "to keep for each worker what it was sent",
    },
    "distribute.ps_values.CachingVariable": {
        "_dense_var_to_tensor": "to pull variables in compressed form"
    },
    "distribute.parameter_server_strategy_v2.ParameterServerStrategyV2": {
        "_cluster_coordinator": _RESIDUALS,
        "_should_use_with_coordinator": "to let tf_keras train under the strategy",
    },
    "distribute.coordinator.cluster_coordinator.ClusterCoordinator": {
        "_create_per_worker_variables": _RESIDUALS
    },
    "distribute.coordinator.values.PerWorkerValues": {"_values": _RESIDUALS},
    "distribute.coordinator.values.RemoteVariable": {
        "_get_values _wait_and_maybe_error": _RESIDUALS
    },
    "distribute.cross_device_ops.CrossDeviceOps": {
        "_all_reduce _gather_implementation _num_between_graph_workers": "to hand to the stock ops "
        "what is not compressed"
    },
    "distribute.cross_device_ops.CollectiveAllReduce": {
        "_collective_keys _devices _group_size _launchers _lock _options": "to let collectives of "
        "a group overlap"
    },
    "distribute.cross_device_utils.CollectiveReplicaLauncher": {
        "_all_gather _device _group_key _group_size _options": "to gather messages",
        "_get_ordering_token _ordering_token": "to let all groups of a GPU share one order",
        "_next_instance_key": "to give collectives in control flow keys of their own",
    },
    "trackable.base.Trackable": {
        "_copy_trackable_to_cpu _gather_saveables_for_checkpoint": "to save residuals"
    },
    "eager.context.Context": {
        "abort_collective_ops": "to end with a worker that has died",
        "_collective_ops_server_def coordination_service get_config_key_value set_config_key_value "
        "wait_at_barrier": "to join a cluster again with all other workers",
    },
    "eager.polymorphic_function.polymorphic_function.Function": {
        "_clone _jit_compile": "to trace what replicas run with what is done before and after it"
    },
    "ops.resource_variable_ops.BaseResourceVariable": {
        "_lazy_read": "to learn which weights layers update; replicas would drift apart"
    },
    "framework.ops.Operation": {
        "_update_input": "to compute what is written from variables that no pull has rounded"
    },
    "framework.auto_control_deps.AutomaticControlDependencies": {
        "ops_which_must_run": "to run what has side effects in a branch"
    },
    "framework.func_graph.FuncGraph": {
        "_add_control_dependencies": "to let no output of a branch wait for all of the branch",
        "_function_captures": "to replace the hidden inputs of a function",
        "control_outputs": "to run what has side effects in a branch",
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
