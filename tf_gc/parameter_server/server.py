"""Workers and parameter servers: processes that run what a coordinator sends them."""

import os

import tensorflow as tf

from tf_gc.ops import _loader

JOBS = ("worker", "ps")


def run_server(
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
) -> None:
    """Runs this task, a worker or a parameter server with tf_gc's native ops, until it is killed.

    Args:
      cluster_resolver: says the cluster and which task this is; `None` reads TF_CONFIG.

    Raises:
      ValueError: if this task is neither a worker nor a parameter server of a cluster.
    """
    resolver = cluster_resolver or tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster, job = resolver.cluster_spec(), resolver.task_type
    if not cluster or job not in JOBS:
        raise ValueError(
            f"run_server runs a task of the jobs {list(JOBS)}: TF_CONFIG must say which one, got "
            f"the task {job!r} {resolver.task_id!r} of the cluster {cluster.as_dict()}. The "
            "coordinator (chief) runs the program that trains"
        )
    _loader.load()
    # A call to a task that is being restarted fails at once, and the coordinator calls again.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    server = tf.distribute.Server(
        cluster,
        job_name=job,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    )
    server.join()
