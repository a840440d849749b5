"""CompressedAllReduce: compresses gradients, leaves every other reduction alone."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.cluster.devices import check_devices
from tf_gc.gradients import gradient_of, path_of
from tf_gc.network.group import LocalNetwork, Network
from tf_gc.network.traffic import ALONE, Traffic
from tf_gc.observe.accounting import (
    Pairs,
    warn_of_unmatched_patterns,
    warn_that_nothing_is_compressed,
)
from tf_gc.observe.log import log_visibly
from tf_gc.observe.measurement import Measurement
from tf_gc.observe.report import Report
from tf_gc.params import Auto, CompressionParams, Gradient, Uncompressed, from_params
from tf_gc.params.patterns import Pattern
from tf_gc.reducers.reducer import Reducer, Spec
from tf_gc.schedule import Schedule, compresses_rows_of, make_schedule
from tf_gc.state.stream import current_stream
from tf_gc.steps.compression_state import CompressionState
from tf_gc.steps.gradient_sums import GradientSums
from tf_gc.steps.step import Step
from tf_gc.steps.trial import TrialStep


def _by_stock(name: str) -> Any:
    """A method that leaves a reduction to the stock ops."""
    return lambda self, *args, **kwargs: getattr(self._stock, name)(*args, **kwargs)


class CompressedAllReduce(tf.distribute.CrossDeviceOps):
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
          ImportError: if the installed TensorFlow lacks what tf_gc needs of its inside.
        """
        _compat.require_attributes()
        check_cross_device_ops(cross_device_ops)
        super().__init__()
        self.compression_params = from_params(compression_params)
        self.compression_state = CompressionState(in_use=bool(self.compression_params.specs()))
        self._stock = cross_device_ops or tf.distribute.ReductionToOneDevice()
        self._reducer_of: Callable[[Spec], Reducer | str] | None = None
        self._sums: GradientSums | None = None
        self._step: Callable[..., Step] = Step
        self._has_warned = False  # that nothing is compressed
        self._unmatched: set[Pattern] = set()  # of which a warning was logged
        self._measurement = Measurement(self.compression_params)

    def connect(self, network: Network, logs: bool = True) -> None:
        """Says which replicas there are; otherwise they are the devices of the first gradients.

        On several hosts this is a collective. It logs, if told to, what is true for all workers. It
        raises ValueError if the native ops were not built for the devices, or plan or wire are of
        no use for these replicas.
        """
        check_devices(self.compression_params, network)
        self._measurement.logs_verdicts = logs
        # To make a reducer may be a collective, so each is made once.
        self._reducer_of = functools.cache(lambda spec: spec.on(network))
        self._connect(network)
        reducers = [self._reducer_of(spec) for spec in self.compression_params.specs()]
        choices = dict.fromkeys(r.choice for r in reducers if not isinstance(r, str))
        if logs and self._is_alone:
            log_visibly(f"tf_gc: {ALONE}")
        for choice in filter(None, choices if logs else ()):
            log = log_visibly if network.hosts > 1 else logging.info
            log(f"tf_gc: {self.compression_params}: {choice}")

    def _connect(self, network: Network) -> None:
        self._sums = GradientSums(network, self._stock, self.compression_state)
        self._measurement.replicas = self._sums.replicas
        if isinstance(params := self.compression_params, Auto):
            group = network.group(network.devices)
            self._step = functools.partial(TrialStep, auto=params, group=group)

    @property
    def _is_alone(self) -> bool:
        alone = self._sums is not None and self._sums.replicas == 1
        return alone and bool(self.compression_params.specs())

    def compresses_rows_of(self, variable: tf.Variable) -> bool:
        if self._reducer_of is None or self._sums is None or self._sums.replicas == 1:
            return False
        return compresses_rows_of(self.compression_params, variable, self._reducer_of)

    @property
    def schedule(self) -> Schedule | None:
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
        """Returns what was measured of this worker's steps, without waiting for a device."""
        return dataclasses.replace(self._measurement.report(), traffic=self.traffic)

    def measure_every(self, steps: int) -> None:
        """Measures density and residuals once in `steps` steps from now on; at first in 100."""
        self._measurement.recorder.measure_every(steps)

    def __deepcopy__(self, memo: dict[int, Any]) -> "CompressedAllReduce":
        # The copy starts with residuals of its own: those here belong to variables of the original.
        twin = CompressedAllReduce(self.compression_params, copy.deepcopy(self._stock, memo))
        if self._sums is not None:
            twin._reducer_of = self._reducer_of
            twin._connect(self._sums.network)
        return twin

    @property
    def _num_between_graph_workers(self) -> int:
        return self._stock._num_between_graph_workers

    reduce_implementation = _by_stock("reduce_implementation")
    broadcast_implementation = _by_stock("broadcast_implementation")
    _all_reduce = _by_stock("_all_reduce")
    _gather_implementation = _by_stock("_gather_implementation")

    def batch_reduce_implementation(
        self, reduce_op: Any, value_destination_pairs: Pairs, options: Any
    ) -> list[Any]:
        pairs = list(value_destination_pairs)
        if self._sums is None:
            variables = (v for _, v in pairs if isinstance(v, _compat.DistributedVariable))
            variable = next(variables, None)
            if variable is None:
                return self._stock.batch_reduce_implementation(reduce_op, pairs, options)
            self.connect(LocalNetwork([component.device for component in variable.values]))
        assert self._sums is not None
        network = self._sums.network
        # One tensor for all local replicas is what they have reduced already, for instance by
        # `strategy.reduce`, or a constant.
        is_reduced = [len(v.values) == 1 and len(network.devices) > 1 for v, _ in pairs]
        to_reduce = [pair for pair, reduced in zip(pairs, is_reduced, strict=True) if not reduced]
        sums = iter(self._reduce(reduce_op, to_reduce, options) if to_reduce else [])
        return [
            self._stock.broadcast(value.values[0], destination) if reduced else next(sums)
            for (value, destination), reduced in zip(pairs, is_reduced, strict=True)
        ]

    def _reduce(self, reduce_op: Any, pairs: Pairs, options: Any) -> list[Any]:
        assert self._reducer_of is not None
        sums = self._sums
        assert sums is not None
        if reduce_op != tf.distribute.ReduceOp.SUM or sums.replicas == 1:
            return self._stock.batch_reduce_implementation(reduce_op, pairs, options)
        earlier: set[int] = set()
        gradients = [_gradient(*pair, earlier) for pair in pairs]
        stream = current_stream()
        schedule = make_schedule(
            self.compression_params, gradients, self._reducer_of, options.bytes_per_pack
        )
        warn_of_unmatched_patterns(self.compression_params, gradients, self._unmatched)
        kept = [bucket.indices for bucket in schedule.buckets if bucket.reducer.keeps_residuals]
        known = {i for i, gradient in enumerate(gradients) if isinstance(gradient, Gradient)}
        pairs = list(pairs)
        for i in sorted(known.difference(*kept)):  # which get no residuals
            value, variable = pairs[i]
            total = self.compression_state.add_restored(stream, value.values, variable)
            if total is not value.values:
                pairs[i] = (_compat.PerReplica(total), variable)
        step = self._step(sums, self._measurement, schedule, pairs, stream, options)
        results: list[Any] = [None] * len(pairs)
        if self.compression_params.specs() and schedule.uncompressed and not schedule.buckets:
            step.note(schedule)
            if not self._has_warned:
                warn_that_nothing_is_compressed(schedule, self.compression_params)
                self._has_warned = True
        if schedule.buckets:
            for i, components in zip(schedule.compressed, step.build(), strict=True):
                results[i] = _compat.regroup(tuple(components), wrap_class=_compat.Mirrored)
        bypassed = [pairs[i] for i in schedule.bypass]
        for i, value in zip(schedule.bypass, sums.stock(bypassed, options), strict=True):
            results[i] = value
        return results


def check_cross_device_ops(cross_device_ops: Any) -> None:
    """Raises TypeError if a user's `cross_device_ops` are of another type."""
    if not isinstance(cross_device_ops, tf.distribute.CrossDeviceOps | None):
        raise TypeError(
            "cross_device_ops must be None or a tf.distribute.CrossDeviceOps such as "
            f"tf.distribute.ReductionToOneDevice(), got {cross_device_ops!r}"
        )


def _gradient(value: Any, destination: Any, earlier: set[int]) -> Gradient | Uncompressed | None:
    """Returns what `gradient_of` does; `None` for other values than gradients."""
    if not isinstance(value, _compat.PerReplica):
        return None
    if not isinstance(destination, _compat.DistributedVariable):
        if not isinstance(destination, tf.Variable):
            return None
        reason = "are of variables made outside of strategy.scope()"
        return Uncompressed(path_of(destination), reason)
    sparse = not all(isinstance(component, tf.Tensor) for component in value.values)
    return gradient_of(destination, value.values[0].dtype, sparse, earlier)
