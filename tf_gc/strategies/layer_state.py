"""State of layers that each replica updates by itself, averaged at the end of every run.

Keras 2 averaged them when the program read them. To average after each step gives the same values,
because a moving average is linear. It also lets a program read a variable without a collective, and
`predict`, `get_weights`, `save` and checkpoints see one model on all replicas and workers.
"""

import dataclasses
import functools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.keras.strategy import strategy_of_replica
from tf_gc.keras.variables import tf_variable
from tf_gc.strategies.sample_weights import written_samples


@dataclasses.dataclass(eq=False)
class _Weight:
    """A weight that each replica updates by itself.

    It stays in the list after it has ended in this process, as garbage is collected at other times
    in other workers, and all of them have to average the same weights.
    """

    keras: Callable[[], Any]  # the Keras variable, `None` when it has ended
    size: int
    dtype: tf.DType  # in which it is averaged
    assigned_in_function: bool = False
    is_noted: bool = False  # whether its components call `note_write`
    holds_samples: bool = False  # as a warning has said

    def variable(self) -> Any:
        variable = tf_variable(self.keras())
        return variable if isinstance(variable, _compat.DistributedVariable) else None


class LayerState:
    """The non-trainable floating-point weights that layers made under a strategy."""

    def __init__(self) -> None:
        self._weights: list[_Weight] = []
        self._lock = threading.Lock()
        # In the threads of an eager run's replicas, `assigned` has what any of them has written.
        self._run = threading.local()
        # A `tf.function` that was run, and the one that contains all replicas.
        self.lifted: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def add(self, weight: Any) -> None:
        dtype = tf.as_dtype(weight.dtype)
        if dtype.is_floating:
            dtype = tf.float64 if dtype == tf.float64 else tf.float32
            noted = _Weight(weakref.ref(weight), math.prod(weight.shape), dtype)
            with self._lock:
                self._weights.append(noted)
            self._note_writes(noted)

    def _note_writes(self, weight: _Weight) -> None:
        """Lets a weight say when a replica writes it, once Keras has made its variable."""
        made = weight.keras()
        if not weight.is_noted and made is not None and made._value is not None:
            weight.is_noted = True
            variable = weight.variable()
            for component in () if variable is None else variable.values:
                _compat.note_writes(component, functools.partial(self._note_write, weight))

    def _note_write(self, weight: _Weight) -> None:
        if strategy_of_replica() is None:  # `set_weights`, or the mean itself
            return
        if not tf.executing_eagerly():
            weight.assigned_in_function = True
        elif "assigned" in vars(self._run):
            self._run.assigned.add(weight)

    def average_after(self, run: Callable[[Any], Any], function: Any, extended: Any) -> Any:
        """Calls `run` with a replica's function, averages what it wrote, and returns the result."""
        for weight in self._all(extended):
            self._note_writes(weight)
        # All workers have to come to the same answer, so it must not depend on values.
        if tf.executing_eagerly():
            assigned = set[_Weight]()

            def replica(*args: Any, **kwargs: Any) -> Any:
                # TensorFlow runs each replica in a thread of its own, which ends with it.
                self._run.assigned = assigned
                return function(*args, **kwargs)

            result = run(function if isinstance(function, _compat.Function) else replica)
            # The run may have called a `tf.function` that was traced before. It assigns the weights
            # that it assigned when it was traced.
            written = [
                weight
                for weight in self._all(extended)
                if weight.assigned_in_function or weight in assigned
            ]
        else:
            graph = tf.compat.v1.get_default_graph()
            operations = len(graph.get_operations())
            result = run(function)
            written = self._written_by(graph, graph.get_operations()[operations:], extended)
        for dtype in (tf.float32, tf.float64):
            if of_dtype := [w for w in written if w.dtype == dtype and w.size > 0]:
                ended = _average(of_dtype, extended)
                with self._lock:
                    self._weights = [weight for weight in self._weights if weight not in ended]
        return result

    @tf.autograph.experimental.do_not_convert
    def _written_by(
        self, graph: tf.Graph, operations: Sequence[tf.Operation], extended: Any
    ) -> list[_Weight]:
        weights = self._all(extended)
        handles = _compat.written_handles(graph, operations) if weights else set()
        variables = [(weight, v) for weight in weights if (v := weight.variable()) is not None]
        written = [
            (weight, variable.values[0])
            for weight, variable in variables
            if any(id(component.handle) in handles for component in variable.values)
        ]
        unwarned = [pair for pair in written if not pair[0].holds_samples]
        for i in written_samples(graph, operations, [component for _, component in unwarned]):
            unwarned[i][0].holds_samples = True
            logging.warning(_HOLDS_SAMPLES, unwarned[i][0].keras().path)
        return [weight for weight, _ in written]

    def _all(self, extended: Any) -> list[_Weight]:
        with self._lock:
            # A weight that no function assigns is averaged only after an eager run that assigns it.
            self._weights = [
                weight
                for weight in self._weights
                if weight.keras() is not None
                or (weight.assigned_in_function and extended.workers.count > 1)
            ]
            return list(self._weights)

    def __deepcopy__(self, memo: dict[int, Any]) -> "LayerState":
        return LayerState()  # the weights stay with the strategy that made them


class RunsReplicas:
    """Mixin of strategies' implementations: averages the state of layers after each run."""

    layer_state: LayerState | None = None

    def _call_for_each_replica(self, function: Any, args: Any, kwargs: Any) -> Any:
        run_replicas = super()._call_for_each_replica  # type: ignore[misc]
        if isinstance(function, _compat.Function) and function._jit_compile:
            # On CPUs the base class would have XLA compile all replicas as one function.
            function = functools.partial(function)
        state = self.layer_state
        if state is None or self._num_replicas_in_sync == 1:  # type: ignore[attr-defined]
            return run_replicas(function, args, kwargs)
        # The base class traces all replicas inside of such a function, and so the averaging.
        if isinstance(function, _compat.Function):
            if function not in state.lifted:
                inner = function.python_function
                state.lifted[function] = function._clone(
                    lambda *args, **kwargs: self._call_for_each_replica(inner, args, kwargs)
                )
            return state.lifted[function](*args, **kwargs)
        return state.average_after(lambda f: run_replicas(f, args, kwargs), function, self)


_HOLDS_SAMPLES = (
    "tf_gc: %s seems to hold samples, since each step replaces some of its elements. It is "
    "averaged over the replicas, as running statistics are, which makes of different samples what "
    "no replica had. Let all replicas write the same: gather the samples with "
    "tf.distribute.get_replica_context().all_gather(samples, axis=0), or pass "
    'aggregation="only_first_replica" to add_weight.'
)


@tf.autograph.experimental.do_not_convert
def _average(weights: Sequence[_Weight], extended: Any) -> list[_Weight]:
    """Gives all replicas the mean of each weight over the replicas in which it is finite.

    A replica without a batch, as at the end of a dataset, has no statistics: Keras gets NaN. The
    weights are of one dtype. It returns those that have ended on all workers.
    """
    dtype = weights[0].dtype
    sizes = [weight.size for weight in weights]
    weight_of = np.repeat(np.arange(len(sizes)), sizes)  # for each element
    variables = [weight.variable() for weight in weights]
    # Functions hold their weights, so in a graph none has ended.
    may_end = extended.workers.count > 1 and tf.executing_eagerly()
    own, packed = [], []
    for replica, device in enumerate(extended.worker_devices):
        with tf.device(device):
            values = [
                tf.fill([size], tf.constant(np.nan, dtype))
                if variable is None
                else tf.cast(_flat(variable.values[replica]), dtype)
                for variable, size in zip(variables, sizes, strict=True)
            ]
            own.append(tf.concat(values, axis=0))
            finite = tf.cast(tf.math.is_finite(own[-1]), dtype)
            counts = tf.math.segment_min(finite, weight_of)
            summand = tf.where(tf.gather(counts, weight_of) > 0, own[-1], tf.zeros_like(own[-1]))
            parts = [summand, counts]
            if may_end:
                parts.append(tf.constant([float(v is not None) for v in variables], dtype))
            packed.append(tf.concat(parts, axis=0))
    value = _compat.PerReplica(packed)
    (total,) = extended._cross_device_ops.batch_reduce(tf.distribute.ReduceOp.SUM, [(value, value)])
    # TensorFlow does not wrap the value of a single local replica.
    totals = getattr(total, "values", (total,))
    for replica, (device, mine, sent) in enumerate(
        zip(extended.worker_devices, own, totals, strict=True)
    ):
        with tf.device(device):
            sums, counts = sent[: len(weight_of)], sent[len(weight_of) :][: len(sizes)]
            counts = tf.gather(counts, weight_of)
            means = tf.split(tf.where(counts > 0, sums / counts, mine), sizes)
            for variable, mean in zip(variables, means, strict=True):
                if variable is not None:
                    component = variable.values[replica]
                    mean = tf.cast(mean, component.dtype)
                    if component.shape.rank != 1:
                        mean = tf.reshape(mean, component.shape)
                    component.assign(mean, read_value=False)
    if not may_end:
        return []
    held = totals[0][-len(sizes) :].numpy()
    return [weight for weight, workers in zip(weights, held, strict=True) if workers == 0]


def _flat(component: tf.Variable) -> tf.Tensor:
    """Returns the elements of a component by as few ops as can be: a model has many statistics."""
    value = tf.raw_ops.ReadVariableOp(resource=component.handle, dtype=component.dtype)
    return value if component.shape.rank == 1 else tf.reshape(value, [-1])
