"""CompressedAllReduce: compresses gradients, leaves every other reduction alone."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc import _compat, warm_up
from tf_gc.codecs import Codec
from tf_gc.distribute.accounting import Accounting
from tf_gc.distribute.devices import check_devices
from tf_gc.distribute.measurement import Measurement
from tf_gc.gradients import path_of
from tf_gc.params import CompressionParams, Gradient, from_params
from tf_gc.reduction.group import LocalNetwork, Network, Replica, is_cpu
from tf_gc.reduction.plan import Reduction
from tf_gc.reduction.plans import Plans
from tf_gc.reduction.traffic import Traffic
from tf_gc.report import Report
from tf_gc.residuals import CompressionState
from tf_gc.schedule import Bucket, Schedule, make_schedule

Pairs = Sequence[tuple[Any, Any]]


class CompressedAllReduce(tf.distribute.CrossDeviceOps):
    """Cross-device ops that sum gradients in compressed form.

    A value is taken for a gradient if it is reduced in a batch with `ReduceOp.SUM` to the
    devices of a distributed variable: `batch_reduce(SUM, [(gradient, variable), ...])`. That
    is how `tf_gc.all_reduce_gradients` and, through it, Keras' optimizers call it. All else,
    that is metrics, losses, BatchNormalization statistics and single reductions, goes to
    other cross-device ops, as do gradients that `compression_params` says not to compress.

    tf_gc's strategies make one themselves. It also works in a stock strategy of one host, for
    loops that call `tf_gc.all_reduce_gradients`:

    ```python
    strategy = tf.distribute.MirroredStrategy(
        cross_device_ops=tf_gc.CompressedAllReduce({"type": "2bit"})
    )
    ```

    Attributes:
      compression_params: what is compressed, and how.
      compression_state: the residuals.
      schedule: what was sent how in the most recently built reduction of gradients; `None` before
        the first.
    """

    def __init__(
        self,
        compression_params: CompressionParams | Mapping[str, Any] | None = None,
        cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
    ) -> None:
        """Initializes the object.

        Args:
          compression_params: as in `tf_gc.CompressedMirroredStrategy`.
          cross_device_ops: reduces everything but compressed gradients; `None` for
            `tf.distribute.ReductionToOneDevice()`.

        Raises:
          ValueError: if `compression_params` has an unknown type, key or value.
          TypeError: if an argument is of another type.
          ImportError: if the installed TensorFlow lacks what tf_gc needs of its inside.
        """
        _compat.require_attributes()
        if cross_device_ops is None:
            cross_device_ops = tf.distribute.ReductionToOneDevice()
        check_cross_device_ops(cross_device_ops)
        super().__init__()
        self.compression_params = from_params(compression_params)
        self.compression_state = CompressionState(in_use=bool(self.compression_params.treatments()))
        self.schedule: Schedule | None = None
        self._stock = cross_device_ops
        self._network: Network | None = None
        self._plans: Plans | None = None
        self._accounting = Accounting(self.compression_params)
        self._measurement = Measurement(self.compression_params)

    def connect(self, network: Network, logs: bool = True) -> None:
        """Says which replicas there are; otherwise they are the devices of the first gradients.

        On several hosts this is a collective.

        Args:
          network: the replicas.
          logs: whether to log what is true for all workers: the wire and the verdict.

        Raises:
          ValueError: if the native ops were not built for the devices, or the plan or the wire in
            `compression_params` is of no use for these replicas.
        """
        check_devices(self.compression_params, network)
        self._network = network
        self._measurement.speaks = logs
        self._plans = Plans(network)
        for treatment in self.compression_params.treatments():
            self._plans.of(treatment.plan, treatment.codec)
            wire = self._plans.wire_of(treatment.wire, treatment.codec)
            if logs:
                logging.info("tf_gc: %s: %s", self.compression_params, wire)

    @property
    def traffic(self) -> Traffic | None:
        """What a replica sends per step; `None` until a step with compression was traced."""
        return self._accounting.traffic

    def report(self) -> Report:
        """Returns what was measured of this worker's steps, without waiting for a device."""
        return self._measurement.report(self._accounting.traffic)

    def measure_every(self, steps: int) -> None:
        """Measures density and residuals in one of so many steps from now on; at first of 100."""
        self._measurement.recorder.measure_every(steps)

    def __deepcopy__(self, memo: dict[int, Any]) -> "CompressedAllReduce":
        # The copy starts with residuals of its own: those here belong to variables of the original.
        twin = CompressedAllReduce(self.compression_params, copy.deepcopy(self._stock, memo))
        twin._network, twin._plans = self._network, self._plans
        return twin

    @property
    def _num_between_graph_workers(self) -> int:
        return self._stock._num_between_graph_workers

    def reduce_implementation(
        self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
    ) -> Any:
        return self._stock.reduce_implementation(
            reduce_op, per_replica_value, destinations, options
        )

    def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
        return self._stock.broadcast_implementation(tensor, destinations)

    def _all_reduce(self, reduce_op: Any, value: Any, replica_id: int, options: Any) -> Any:
        return self._stock._all_reduce(reduce_op, value, replica_id, options)

    def _gather_implementation(
        self, per_replica_value: Any, destinations: Any, axis: int, options: Any
    ) -> Any:
        return self._stock._gather_implementation(per_replica_value, destinations, axis, options)

    def batch_reduce_implementation(
        self, reduce_op: Any, value_destination_pairs: Pairs, options: Any
    ) -> list[Any]:
        pairs = list(value_destination_pairs)
        if self._network is None:
            variables = (v for _, v in pairs if isinstance(v, _compat.DistributedVariable))
            variable = next(variables, None)
            if variable is None:
                return self._stock.batch_reduce_implementation(reduce_op, pairs, options)
            self.connect(LocalNetwork([component.device for component in variable.values]))
        assert self._network is not None
        results: list[Any] = [None] * len(pairs)
        to_reduce = []
        for i, (value, destination) in enumerate(pairs):
            if len(value.values) == 1 and len(self._network.devices) > 1:
                # One tensor for all local replicas: it is what they have reduced already, for
                # instance by `strategy.reduce`, or a constant.
                results[i] = self._stock.broadcast(value.values[0], destination)
            else:
                to_reduce.append(i)
        if to_reduce:
            reduced = self._reduce(reduce_op, [pairs[i] for i in to_reduce], options)
            for i, value in zip(to_reduce, reduced, strict=True):
                results[i] = value
        return results

    def _reduce(self, reduce_op: Any, pairs: Pairs, options: Any) -> list[Any]:
        assert self._plans is not None
        if reduce_op != tf.distribute.ReduceOp.SUM or self._replicas == 1:
            return self._stock.batch_reduce_implementation(reduce_op, pairs, options)
        gradients = [_gradient(*pair) for pair in pairs]
        schedule = make_schedule(
            self.compression_params, gradients, self._plans, options.bytes_per_pack
        )
        self._accounting.say_what_matches_nothing(gradients)
        bypassed = [
            self._with_restored(*pairs[i]) if gradients[i] is not None else pairs[i]
            for i in schedule.bypass
        ]
        results: list[Any] = [None] * len(pairs)
        if schedule.buckets:
            if schedule.warm_up:
                sums = self._warm_up_or_compressed_step(schedule, pairs, options)
            else:
                sums = self._compressed_step(schedule, pairs, options)
            for i, components in zip(schedule.compressed, sums, strict=True):
                results[i] = _compat.regroup(tuple(components), wrap_class=_compat.Mirrored)
        elif self.compression_params.treatments() and any(
            isinstance(variable, _compat.DistributedVariable) for _, variable in pairs
        ):
            self._note(schedule, pairs, [])
            self._accounting.say_that_nothing_is_compressed(gradients)
        for i, value in zip(schedule.bypass, self._stock_sums(bypassed, options), strict=True):
            results[i] = value
        return results

    def _compressed_step(
        self, schedule: Schedule, pairs: Pairs, options: Any
    ) -> list[list[tf.Tensor]]:
        """Returns the sums of all gradients in buckets, each on the local devices."""
        step = self._measurement.compressed_step(schedule, pairs)
        reductions = [
            self._compress(i, bucket, step.codecs[i], pairs, options)
            for i, bucket in enumerate(schedule.buckets)
        ]
        sizes = [reduction.sent_bytes for reduction in reductions]
        traffic = self._note(schedule, pairs, reductions)
        self._measurement.built(
            step.number, schedule, traffic, self._accounting.bypassed_bytes, sizes
        )
        sums = [components for reduction in reductions for components in _by_gradient(reduction)]
        _run_in_session([step.end(sizes)], sums)
        return sums

    def _compress(
        self, number: int, bucket: Bucket, codec: Codec, pairs: Pairs, options: Any
    ) -> Reduction:
        replicas = self._replicas_of(bucket, pairs)
        return bucket.plan.reduce(codec, bucket.wire, number, replicas, options)

    def _with_restored(self, value: Any, variable: Any) -> tuple[Any, Any]:
        """Returns a gradient that is not compressed, plus what was restored of it, and where to."""
        total = self.compression_state.add_restored(value.values, variable)
        return (value if total is value.values else _compat.PerReplica(total)), variable

    def _warm_up_or_compressed_step(
        self, schedule: Schedule, pairs: Pairs, options: Any
    ) -> list[list[tf.Tensor]]:
        warm = [i for bucket in schedule.buckets if bucket.warm_up for i in bucket.indices]
        others = [i for i in range(len(pairs)) if i not in warm]
        variables = [pairs[i][1] for i in [*warm, *others]]
        state = self.compression_state.warm_up_of_one(
            [v for v in variables if isinstance(v, _compat.DistributedVariable)]
        )
        # One branch for all buckets: TensorFlow would run one after the other those that
        # share what is stateful, such as the order of the collectives.
        return tf.cond(
            warm_up.is_on(state.values[0].read_value()),
            lambda: self._warm_up_step(state, pairs, schedule, options),
            lambda: self._compressed_step(schedule, pairs, options),
        )

    def _replicas_of(self, bucket: Bucket, pairs: Pairs) -> list[Replica]:
        """Returns what each replica of this host contributes to a bucket."""
        assert self._network is not None
        of_bucket = [pairs[i] for i in bucket.indices]
        residuals = [self.compression_state.residuals_of(variable) for _, variable in of_bucket]
        return [
            Replica(
                device,
                [_shaped(value.values[r], variable) for value, variable in of_bucket],
                [residual[r] for residual in residuals],
            )
            for r, device in enumerate(self._network.devices)
        ]

    def _stock_sums(self, pairs: Pairs, options: Any) -> list[Any]:
        """Returns each pair's sum by the stock ops."""
        # They concatenate what they get, and so take one dtype at a time.
        by_dtype: dict[tf.DType, list[int]] = {}
        for i, (value, _) in enumerate(pairs):
            by_dtype.setdefault(value.values[0].dtype, []).append(i)
        sums: list[Any] = [None] * len(pairs)
        for indices in by_dtype.values():
            stock = self._stock.batch_reduce_implementation(
                tf.distribute.ReduceOp.SUM, [pairs[i] for i in indices], options
            )
            for i, value in zip(indices, stock, strict=True):
                sums[i] = value
        return sums

    def _warm_up_step(
        self, state: Any, pairs: Pairs, schedule: Schedule, options: Any
    ) -> list[list[tf.Tensor]]:
        """Returns the buckets' sums on the local devices, by the stock ops where they warm up."""
        noted = self._measurement.full_precision_step(schedule, pairs)
        reports = []
        for component in state.values:
            with tf.device(component.device):
                reports.append(warm_up.report(component.read_value()))
        sums, warm = [], []
        # Each bucket by itself: the stock ops copy what they sum at once.
        for i, bucket in enumerate(schedule.buckets):
            if bucket.warm_up:
                stock = self._stock_sums([pairs[i] for i in bucket.indices], options)
                warm += [_components(total) for total in stock]
                sums += warm[-len(stock) :]
            else:
                sums += _by_gradient(self._compress(i, bucket, bucket.codec, pairs, options))
        reported = _components(*self._stock_sums([(_compat.PerReplica(reports), state)], options))
        after: tf.Tensor | None = None
        assigned = []
        for device, component in enumerate(state.values):
            with tf.device(component.device):
                # CPU devices, which share memory, have one of them do it for all.
                if after is None or not is_cpu(component.device):
                    mine = [components[device] for components in warm]
                    after = warm_up.after_step(component.read_value(), reported[device], mine)
                assigned.append(component.assign(after, read_value=False))
        _run_in_session([noted, *assigned, *reported], sums)
        return sums

    @property
    def _replicas(self) -> int:
        assert self._network is not None
        return self._network.hosts * len(self._network.devices)

    def _note(self, schedule: Schedule, pairs: Pairs, reductions: Sequence[Reduction]) -> Traffic:
        self.schedule = schedule
        self.compression_state.say_what_was_restored()
        return self._accounting.note(schedule, pairs, reductions, self._replicas)


def _run_in_session(operations: Sequence[Any], sums: list[list[tf.Tensor]]) -> None:
    """Lets the first sum wait for operations, in a graph for a Session.

    Such a graph runs only what its results depend on, and a collective that is left out on one
    device would be waited for on the others.
    """
    if not _compat.builds_function():
        with tf.control_dependencies(operations), tf.device(sums[0][0].device):
            sums[0][0] = tf.identity(sums[0][0])


def check_cross_device_ops(cross_device_ops: Any) -> None:
    """Raises TypeError if a user's `cross_device_ops` are of another type."""
    if not isinstance(cross_device_ops, tf.distribute.CrossDeviceOps):
        raise TypeError(
            "cross_device_ops must be None or a tf.distribute.CrossDeviceOps such as "
            f"tf.distribute.ReductionToOneDevice(), got {cross_device_ops!r}"
        )


def _gradient(value: Any, destination: Any) -> Gradient | None:
    """Returns what is known of a gradient; `None` for all other values."""
    if not isinstance(value, _compat.PerReplica) or not isinstance(
        destination, _compat.DistributedVariable
    ):
        return None
    if not destination.shape.is_fully_defined():
        return None
    return Gradient(
        path=path_of(destination),
        dtype=value.values[0].dtype,
        shape=tuple(destination.shape),
        sparse=not all(isinstance(component, tf.Tensor) for component in value.values),
    )


def _by_gradient(reduction: Reduction) -> list[list[tf.Tensor]]:
    """Returns the sums of a bucket: for each gradient, one on each local device."""
    return [list(components) for components in zip(*reduction.sums, strict=True)]


def _components(total: Any) -> list[tf.Tensor]:
    """Returns a sum on each local device; TensorFlow does not wrap that of a single replica."""
    return list(getattr(total, "values", [total]))


def _shaped(gradient: tf.Tensor, variable: Any) -> tf.Tensor:
    """Returns a gradient that knows its shape; that of a loop, say, may not."""
    gradient.set_shape(variable.shape)
    return gradient
