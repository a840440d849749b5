"""CompressedMultiWorkerMirroredStrategy: several hosts."""

import functools
import numbers
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.cluster import rejoin
from tf_gc.cluster.cluster import is_evaluator, joining, set_server_options
from tf_gc.cluster.devices import check_devices
from tf_gc.cluster.ending import end_soon_after_others
from tf_gc.cluster.workers import Workers, check_agreement
from tf_gc.keras.install import install
from tf_gc.keras.variables import is_variable
from tf_gc.network.cluster_network import ClusterNetwork
from tf_gc.network.collectives import key_bases
from tf_gc.network.group import LocalNetwork, Network
from tf_gc.params import CompressionParams, from_params
from tf_gc.state.registry import Zeros
from tf_gc.strategies.compressed_all_reduce import CompressedAllReduce
from tf_gc.strategies.compressed_strategy import CompressedStrategy, refuse_params
from tf_gc.strategies.layer_state import RunsReplicas


class CompressedMultiWorkerMirroredStrategy(
    CompressedStrategy, tf.distribute.MultiWorkerMirroredStrategy
):
    """`tf.distribute.MultiWorkerMirroredStrategy` that sums gradients in compressed form.

    Made by the same program on every worker, with `TF_CONFIG` or a cluster resolver, as the base
    class. Unlike under the base class, Keras 3's `fit`, `evaluate` and `predict` work. A worker's
    replicas are its GPUs or, without any, its logical CPU devices (one, unless configured).

    An evaluator, a process whose task type is `"evaluator"`, trains and evaluates by itself,
    whether or not it is in the cluster. The job's files are not its own: `is_chief` is `False`.
    """

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        communication_options: tf.distribute.experimental.CommunicationOptions | None = None,
        compression_params: CompressionParams | Mapping[str, Any] | None = None,
        *,
        average_layer_state: bool | None = None,
        clip_after_sum: bool = False,
    ) -> None:
        """Initializes the strategy, and waits for the other workers.

        Args:
          cluster_resolver: who the workers are; `None` reads `TF_CONFIG`.
          communication_options: options of the collectives; `bytes_per_pack` also is the size of
            a bucket of gradients, and has to be the same on all workers.
          compression_params: as in `CompressedMirroredStrategy`, and the same on all workers.
          average_layer_state: likewise.
          clip_after_sum: likewise.

        Raises:
          ValueError: if an argument has an unknown type, key or value, the cluster's description
            is wrong, the native ops were not built for the devices, or another worker has other
            arguments or another wire version.
          RuntimeError: if TensorFlow has run something before the first strategy, a worker has
            ended before a further one, or a cluster's strategy is made in a function or graph.
          OSError: if this worker's port is taken.
          TimeoutError: if the other workers do not come within `timeout_seconds` of the
            communication options (an hour, if they do not say).
          TypeError: if an argument is of another type.
          ImportError: if the installed TensorFlow or Keras lacks a private part that tf_gc needs.
        """
        _check_types(cluster_resolver, communication_options)
        params = from_params(compression_params)
        self._set_options(params, average_layer_state, clip_after_sum)
        install(self, several_workers=True)
        self._collective_key_base = next(key_bases)
        options = communication_options or tf.distribute.experimental.CommunicationOptions()
        with joining(cluster_resolver, options.timeout_seconds):
            extended = _CompressedMultiWorkerExtended(self, cluster_resolver, options)
        tf.distribute.Strategy.__init__(self, extended)
        self.extended.layer_state = self.layer_state
        self.extended.compress(params, self.clip_after_sum)
        if cluster_resolver is None and not os.environ.get("TF_CONFIG"):
            logging.warning("tf_gc: TF_CONFIG is not set: this process trains without any others")

    def experimental_distribute_dataset(
        self, dataset: tf.data.Dataset, options: tf.distribute.InputOptions | None = None
    ) -> tf.distribute.DistributedDataset:
        """Distributes a dataset, as `tf.distribute.Strategy.experimental_distribute_dataset`.

        With `AutoShardPolicy.OFF` a worker runs through all of the dataset in batches of its share,
        of which there are more than Keras would count. Its attribute `unsharded` says so.
        """
        distributed = super().experimental_distribute_dataset(dataset, options)
        policy = dataset.options().experimental_distribute.auto_shard_policy
        off = policy == tf.data.experimental.AutoShardPolicy.OFF
        distributed.unsharded = self.workers.count > 1 and off
        return distributed

    def reduce(self, reduce_op: tf.distribute.ReduceOp | str, value: Any, axis: int | None) -> Any:
        """Reduces `value` over replicas, as `tf.distribute.Strategy.reduce`.

        Keras 3 reduces scalars with `axis=0`, which they do not have: over replicas only.
        """
        if is_variable(value):
            # A metric may return its variable, which is reduced over the replicas when it is read.
            value = tf.convert_to_tensor(value)
        if axis == 0 and _is_scalar(value):
            axis = None
        return super().reduce(reduce_op, value, axis)


class _CompressedMultiWorkerExtended(RunsReplicas, _compat.MultiWorkerExtended):
    def __init__(self, strategy: Any, cluster_resolver: Any, options: Any) -> None:
        super().__init__(strategy, cluster_resolver, options)
        self._network = ClusterNetwork(
            self._num_workers,
            self.worker_devices,
            self._worker_device,
            self._communication_options,
            self._collective_keys,
            _share_a_machine(self._cluster_resolver),
        )
        self._host_cross_device_ops = self._network.collectives([self._worker_device])
        self.workers = Workers(
            self._num_workers,
            is_chief=_is_chief(self._cluster_resolver, self._num_workers),
            all_gather=self._network.gather_from_hosts,
        )

    def compress(self, params: CompressionParams, clip_after_sum: bool) -> None:
        """Puts CompressedAllReduce in front of the cross-device ops; a collective."""
        network: Network = LocalNetwork(self.worker_devices)
        if self.workers.count > 1:
            network = self._network
            check_devices(params, network)
            arguments = {
                "average_layer_state": self.layer_state is not None,
                "clip_after_sum": clip_after_sum,
                "bytes_per_pack": self._communication_options.bytes_per_pack,
            }
            check_agreement(params, arguments, self.workers)
            end_soon_after_others(self._cluster_resolver)
        stock = self._network.collectives(self.worker_devices)
        self.compressed_all_reduce = CompressedAllReduce(params, stock)
        self.compressed_all_reduce.connect(network, logs=self.workers.is_chief)
        self._cross_device_ops = self.compressed_all_reduce

    def _initialize_multi_worker(self, cluster_resolver: Any) -> None:
        if is_evaluator(cluster_resolver):
            # The base class would need it in the cluster, listen on its port for nobody, and abort
            # its collectives when the workers have ended.
            self._initialize_local(cluster_resolver)
            return
        if not tf.executing_eagerly():
            raise RuntimeError(
                "a strategy of a cluster has to be made eagerly: not in a tf.function or a tf.Graph"
            )

        def initialize(joins: bool) -> None:
            self._std_server_started = not joins
            super(_CompressedMultiWorkerExtended, self)._initialize_multi_worker(cluster_resolver)

        if not _compat.is_member(cluster_resolver):
            initialize(joins=True)
            return
        self._enable_check_health = False  # which begins with a collective
        timeout = self._communication_options.timeout_seconds
        rejoin.initialize_again(cluster_resolver, initialize, timeout)

    def _update_config_proto(self, config_proto: Any) -> Any:
        config = super()._update_config_proto(config_proto)
        set_server_options(config, self._communication_options.timeout_seconds)
        return config

    def _initialize_local_devices(
        self, cluster_resolver: Any, worker_device: str
    ) -> tuple[tuple[str, ...], str]:
        devices, kind = super()._initialize_local_devices(cluster_resolver, worker_device)
        if kind == "CPU":
            # The base class takes one device. More exist only if the program configured them.
            parse = tf.DeviceSpec.from_string
            mine = parse(worker_device)
            cpus = [parse(device.name) for device in tf.config.list_logical_devices("CPU")]
            count = sum((cpu.job, cpu.task) == (mine.job, mine.task) for cpu in cpus)
            devices = tuple(f"{worker_device}/device:CPU:{i}" for i in range(count))
        return devices, kind

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: Any, primary_var: Any, **kwargs: Any
    ) -> Any:
        # The base class broadcasts what the chief's first replica starts with.
        value = kwargs.pop("initial_value")
        if replica_id == 0 and isinstance(value, Zeros):
            return value
        stock = functools.partial(
            super()._get_variable_creator_initial_value, replica_id, device, primary_var, **kwargs
        )
        if replica_id > 0:
            return stock(initial_value=value)

        def checked() -> Any:
            with tf.device(device):
                first = value() if callable(value) else value
                first = tf.convert_to_tensor(first, kwargs.get("dtype"))
            if tf.executing_eagerly():
                doing = f"makes a variable of {first.dtype.name} {tuple(first.shape)}"
                self.workers.meet(doing, details=f", {kwargs.get('name')!r}")
            return stock(initial_value=first)()

        return checked

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        # Keras reduces whole batches, tuples among them; the base class takes one value.
        def reduce_one(component: Any) -> Any:
            return super(_CompressedMultiWorkerExtended, self)._reduce_to(
                reduce_op, component, component if destinations is value else destinations, options
            )

        return tf.nest.map_structure(reduce_one, value)


def _is_chief(resolver: tf.distribute.cluster_resolver.ClusterResolver, workers: int) -> bool:
    if workers == 1:
        return not is_evaluator(resolver)
    chief = ("chief" if "chief" in resolver.cluster_spec().jobs else "worker", 0)
    return (resolver.task_type, resolver.task_id) == chief


def _share_a_machine(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> bool:
    """Returns whether all workers have addresses of one host."""
    cluster = resolver.cluster_spec().as_dict()
    addresses = [address for job in ("chief", "worker") for address in cluster.get(job, ())]
    return len({address.rpartition(":")[0] for address in addresses}) == 1


def _is_scalar(value: Any) -> bool:
    components = value.values if isinstance(value, tf.distribute.DistributedValues) else (value,)
    return all(isinstance(c, numbers.Number) or getattr(c, "shape", None) == () for c in components)


def _check_types(cluster_resolver: Any, communication_options: Any) -> None:
    refuse_params("cluster_resolver", cluster_resolver)
    refuse_params("communication_options", communication_options)
    if cluster_resolver is not None and not hasattr(cluster_resolver, "cluster_spec"):
        raise TypeError(
            "cluster_resolver must be None or a tf.distribute.cluster_resolver.ClusterResolver, "
            f"got {cluster_resolver!r}"
        )
    if communication_options is not None and not hasattr(communication_options, "bytes_per_pack"):
        raise TypeError(
            "communication_options must be None or a "
            f"tf.distribute.experimental.CommunicationOptions, got {communication_options!r}"
        )
