"""A cluster resolver for Slurm, on hosts with or without GPUs and with any number of tasks each."""

import tensorflow as tf

from tf_gc.launch.slurm import tasks_of_step


class SlurmClusterResolver(tf.distribute.cluster_resolver.SimpleClusterResolver):
    """The tasks of a Slurm job step, as workers.

    ```python
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
        cluster_resolver=tf_gc.SlurmClusterResolver()
    )
    ```

    Every task that `srun` starts is a worker, the one of rank 0 the chief. It listens at
    `port_base` plus its number on its host. Which GPUs a task sees is for Slurm to say, for
    instance by `--gpus-per-task`. TensorFlow's own `SlurmClusterResolver` needs GPUs, and orders
    the hosts by their names as texts ("n10" before "n2"), where Slurm's ranks follow their numbers.
    """

    def __init__(self, port_base: int = 8888, rpc_layer: str = "grpc") -> None:
        """Reads the environment of the job step.

        Args:
          port_base: the port of the first task on each host. Two jobs that may share a host need
            ports that are apart.
          rpc_layer: the protocol of TensorFlow's channel.

        Raises:
          RuntimeError: if `srun` has not started this process, or the tasks of a host do not have
            consecutive ranks.
          ValueError: if `port_base` is no port, or leaves too few for the tasks of a host.
        """
        addresses, rank = tasks_of_step(port_base)
        super().__init__(
            tf.train.ClusterSpec({"worker": addresses}),
            task_type="worker",
            task_id=rank,
            rpc_layer=rpc_layer,
        )
