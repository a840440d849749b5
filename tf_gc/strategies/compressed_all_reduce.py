"""CompressedAllReduce: compresses gradients, leaves every other reduction alone."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.cluster.devices import check_devices
from tf_gc.network.group import LocalNetwork, Network
from tf_gc.network.traffic import ALONE, Traffic
from tf_gc.observe.accounting import (
    Pairs,
)
from tf_gc.observe.log import log_visibly
from tf_gc.observe.measurement import Measurement
from tf_gc.observe.report import Report
from tf_gc.params import Auto, CompressionParams, from_params
from tf_gc.params.arguments import POSITIVE, integer
from tf_gc.reducers.reducer import Reducer, Spec
from tf_gc.schedule import Schedule
from tf_gc.steps.compression_state import CompressionState
from tf_gc.steps.gradient_sums import GradientSums
from tf_gc.steps.trial import TrialSums


def _by_stock(name: str) -> Any:
    """A method that leaves a reduction to the stock ops."""
    return lambda self, *args, **kwargs: getattr(self._stock, name)(*args, **kwargs)


class Observed:
    """What programs can see of gradients that are summed in compressed form."""

    compression_params: CompressionParams
    _measurement: Measurement

    @property
    def schedule(self) -> Schedule | None:
        """How each gradient is sent, for `print`; `None` until a compressed step was traced."""
        if self._is_alone:
            return Schedule((), (), (), alone=True)
        return self._measurement.schedule()

    @property
    def traffic(self) -> Traffic | None:
        """The bytes that a replica sends per step; `None` until a compressed step was traced."""
        if self._is_alone:
            return Traffic("stock", 1, 0, 0, 0, 0, 0)
        return self._measurement.traffic()

    def report(self) -> Report:
        """Returns what was measured of this worker's steps: times, bytes, density, residuals.

        Nothing waits for a device, and workers may call it by themselves. Before the first
        compressed step most of it is `None`.
        """
        return dataclasses.replace(self._measurement.report(), traffic=self.traffic)

    def measure_every(self, steps: int) -> None:
        """Measures density and residuals once in `steps` steps from now on; at first in 100.

        Raises:
          ValueError: if `steps` is not a positive integer.
        """
        words = "steps must be a positive integer"
        self._measurement.recorder.measure_every(integer(words, steps, allowed=POSITIVE))

    @property
    def _is_alone(self) -> bool:
        return self._measurement.replicas == 1 and bool(self.compression_params.specs())


class CompressedAllReduce(Observed, tf.distribute.CrossDeviceOps):
    """Cross-device ops that sum gradients in compressed form.

    A value is taken for a gradient if it is reduced in a batch with `ReduceOp.SUM` to a distributed
    variable, as `tf_gc.all_reduce_gradients` does. All else, that is metrics, losses,
    BatchNormalization statistics and single reductions, goes to other cross-device ops.

    tf_gc's strategies make one themselves. It also works in a stock strategy of one host, for loops
    that call `tf_gc.all_reduce_gradients`:

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
          ImportError: if the installed TensorFlow lacks a private part that tf_gc needs.
        """
        _compat.require_attributes()
        check_cross_device_ops(cross_device_ops)
        super().__init__()
        self.compression_params = from_params(compression_params)
        self.compression_state = CompressionState(in_use=bool(self.compression_params.specs()))
        self._stock = cross_device_ops or tf.distribute.ReductionToOneDevice()
        self._measurement = Measurement(self.compression_params)
        self.senders: Mapping[Spec, Reducer | str] = {}
        self._sums: GradientSums | None = None  # until it is known which replicas there are

    def connect(self, network: Network, logs: bool = True) -> None:
        """Says which replicas there are; otherwise they are the devices of the first gradients.

        On several hosts this is a collective. It logs, if told to, what is true for all workers. It
        raises ValueError if the native ops were not built for the devices, or plan or wire are of
        no use for these replicas.
        """
        params = self.compression_params
        check_devices(params, network)
        # To make a reducer may be a collective, so each is made once.
        reducers = {spec: spec.on(network) for spec in params.specs()}
        replicas = network.hosts * len(network.devices)
        self.senders = reducers if replicas > 1 else dict.fromkeys(reducers, ALONE)
        self._measurement.logs_verdicts = logs
        self._measurement.replicas = replicas
        shared = (network, self.senders, self._stock, self.compression_state, self._measurement)
        if isinstance(params, Auto):
            self._sums = TrialSums(params, *shared)
        else:
            self._sums = GradientSums(params, *shared)
        if logs and self._is_alone:
            log_visibly(f"tf_gc: {ALONE}")
        choices = dict.fromkeys(r.choice for r in reducers.values() if not isinstance(r, str))
        for choice in filter(None, choices if logs else ()):
            log = log_visibly if network.hosts > 1 else logging.info
            log(f"tf_gc: {params}: {choice}")

    def __deepcopy__(self, memo: dict[int, Any]) -> "CompressedAllReduce":
        # The copy starts with residuals of its own: those here belong to variables of the original.
        twin = CompressedAllReduce(self.compression_params, copy.deepcopy(self._stock, memo))
        if self._sums is not None:
            twin.connect(self._sums.network, self._measurement.logs_verdicts)
        return twin

    @property
    def _num_between_graph_workers(self) -> int:
        return self._stock._num_between_graph_workers

    reduce_implementation = _by_stock("reduce_implementation")
    batch_reduce_implementation = _by_stock("batch_reduce_implementation")
    broadcast_implementation = _by_stock("broadcast_implementation")
    _all_reduce = _by_stock("_all_reduce")
    _gather_implementation = _by_stock("_gather_implementation")

    def batch_reduce(
        self,
        reduce_op: tf.distribute.ReduceOp,
        value_destination_pairs: Pairs,
        options: tf.distribute.experimental.CommunicationOptions | None = None,
    ) -> list[Any]:
        """Reduces a batch of values, as `tf.distribute.CrossDeviceOps.batch_reduce`."""
        pairs = list(value_destination_pairs)
        variables = [v for _, v in pairs if isinstance(v, _compat.DistributedVariable)]
        if self._sums is None and variables:
            self.connect(LocalNetwork([component.device for component in variables[0].values]))
        sums = self._sums
        if sums is None or reduce_op != tf.distribute.ReduceOp.SUM:
            return super().batch_reduce(reduce_op, pairs, options)
        for i, (value, destination) in enumerate(pairs):
            if not isinstance(value, tf.distribute.DistributedValues):
                is_sparse = isinstance(value, tf.IndexedSlices)
                alone = value if is_sparse else tf.convert_to_tensor(value)
                pairs[i] = (_compat.PerReplica((alone,)), destination)
        n, kind = len(sums.network.devices), _compat.PerReplica
        if all(isinstance(value, kind) and len(value.values) == n for value, _ in pairs):
            if sums.replicas > 1:
                return sums.sum(pairs, options or tf.distribute.experimental.CommunicationOptions())
            pairs = sums.with_restored(pairs, range(len(pairs)))
            self.compression_state.log_what_was_restored()
        return super().batch_reduce(reduce_op, pairs, options)


def check_cross_device_ops(cross_device_ops: Any) -> None:
    """Raises TypeError if a user's `cross_device_ops` are of another type."""
    if not isinstance(cross_device_ops, tf.distribute.CrossDeviceOps | None):
        raise TypeError(
            "cross_device_ops must be None or a tf.distribute.CrossDeviceOps such as "
            f"tf.distribute.ReductionToOneDevice(), got {cross_device_ops!r}"
        )
