"""State of layers that each replica updates by itself, averaged at the end of every run.

Keras 2 averaged moving averages over the replicas when the program read them. To average them after
each step gives the same values, because a moving average is linear. It also makes the components of
the variables the same whenever no replica is running. Then a program can read a variable without a
collective, and `predict`, `get_weights`, `save` and checkpoints see one model on all replicas and
workers.
"""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tf_gc import _compat
from tf_gc.keras.flavour import tf_variable
from tf_gc.strategies.sample_weights import holds_samples

Reduce = Callable[[Any], Any]


class LayerState:
    """The non-trainable floating-point weights that layers made under a strategy."""

    def __init__(self) -> None:
        self._weights: list[weakref.ref[Any]] = []
        self._lock = threading.Lock()
        # The weights that replicas have assigned in the current eager run; `None` outside of one.
        self._assigned: list[Any] | None = None
        # A `tf.function` that was run, and the one that contains all replicas.
        self.lifted: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def add(self, weight: Any) -> None:
        """Notes a Keras variable; only those with floating-point numbers are averaged."""
        if tf.as_dtype(weight.dtype).is_floating:
            weight.tf_gc_assigned_in_function = False
            weight.tf_gc_holds_samples = False
            with self._lock:
                self._weights.append(weakref.ref(weight))

    def note_assignment(self, weight: Any) -> None:
        """Notes that a replica assigns a weight, or builds a function that does."""
        if not hasattr(weight, "tf_gc_assigned_in_function"):
            return
        if not tf.executing_eagerly():
            weight.tf_gc_assigned_in_function = True
        elif self._assigned is not None:
            self._assigned.append(weight)

    def average_after(self, run: Callable[[], Any], reduce_sum: Reduce) -> Any:
        """Calls a function that runs the replicas, and averages what they wrote.

        Args:
          run: called once, without arguments, in the cross-replica context.
          reduce_sum: sums a `PerReplica` value over all replicas.

        Returns:
          What `run` returns.
        """
        # All workers have to come to the same answer, so it must not depend on values.
        if tf.executing_eagerly():
            # A run may call another one in a merge_call; then this is the list of the outer run.
            around = self._assigned
            of_replicas: list[Any] = []
            self._assigned = of_replicas
            try:
                result = run()
            finally:
                self._assigned = around
            assigned = {id(weight) for weight in of_replicas}
            # The run may have called a `tf.function` that was traced before. It assigns the weights
            # that it assigned when it was traced.
            written = [
                variable
                for weight, variable in self._variables()
                if id(weight) in assigned or weight.tf_gc_assigned_in_function
            ]
        else:
            graph = tf.compat.v1.get_default_graph()
            operations = len(graph.get_operations())
            result = run()
            of_layers = list(self._variables())
            written = []
            if of_layers:
                of_run = graph.get_operations()[operations:]
                handles = _compat.written_handles(graph, of_run)
                for weight, variable in of_layers:
                    if any(id(component.handle) in handles for component in variable.values):
                        written.append(variable)
                        self._warn_of_samples(weight, graph, of_run)
        if written:
            _average(written, reduce_sum)
        return result

    def _warn_of_samples(
        self, weight: Any, graph: tf.Graph, operations: Sequence[tf.Operation]
    ) -> None:
        component = tf_variable(weight).values[0]
        if weight.tf_gc_holds_samples or not holds_samples(graph, operations, component):
            return
        weight.tf_gc_holds_samples = True  # and a warning has said so
        logging.warning(
            "tf_gc: %s seems to hold samples, since each step replaces some of its elements. It is "
            "averaged over the replicas, as running statistics are, which makes of different "
            "samples what no replica had. Let all replicas write the same: gather the samples with "
            "tf.distribute.get_replica_context().all_gather(samples, axis=0), or pass "
            'aggregation="only_first_replica" to add_weight.',
            weight.path,
        )

    def _variables(self) -> Iterator[tuple[Any, Any]]:
        """Yields the weights that still exist, and their distributed variables."""
        with self._lock:
            self._weights = [weight for weight in self._weights if weight() is not None]
            weights = [weight() for weight in self._weights]
        for weight in weights:
            value = tf_variable(weight)
            if isinstance(value, _compat.DistributedVariable):
                yield weight, value

    def __deepcopy__(self, memo: dict[int, Any]) -> "LayerState":
        return LayerState()  # the weights stay those of the strategy that made them


class RunsReplicas:
    """Mixin of strategies' implementations: averages the state of layers after each run.

    Attributes:
      layer_state: what is averaged; `None` for nothing.
    """

    layer_state: LayerState | None = None

    def _call_for_each_replica(self, function: Any, args: Any, kwargs: Any) -> Any:
        run_replicas = super()._call_for_each_replica  # type: ignore[misc]
        state = self.layer_state
        if state is None or self._num_replicas_in_sync == 1:  # type: ignore[attr-defined]
            return run_replicas(function, args, kwargs)
        if _compat.is_function_to_trace(function):
            # The base class traces all replicas inside of this function. The averaging has to be
            # traced inside of the same function.
            traced = state.lifted.get(function)
            if traced is None:
                python_function = function.python_function
                traced = _compat.clone_function(
                    function,
                    lambda *args, **kwargs: self._call_for_each_replica(
                        python_function, args, kwargs
                    ),
                )
                state.lifted[function] = traced
            return traced(*args, **kwargs)
        return state.average_after(
            lambda: run_replicas(function, args, kwargs),
            lambda value: self._cross_device_ops.batch_reduce(  # type: ignore[attr-defined]
                tf.distribute.ReduceOp.SUM, [(value, value)]
            )[0],
        )


def _average(variables: Sequence[Any], reduce_sum: Reduce) -> None:
    """Gives all replicas the mean of each variable over the replicas in which it is finite.

    A replica without a batch, as at the end of a dataset, has no statistics: Keras gets NaN.
    """
    variables = [variable for variable in variables if variable.shape.num_elements() > 0]
    for dtype in (tf.float32, tf.float64):
        of_dtype = [v for v in variables if (v.dtype == tf.float64) == (dtype == tf.float64)]
        if of_dtype:
            _average_in(dtype, of_dtype, reduce_sum)


def _average_in(dtype: tf.DType, variables: Sequence[Any], reduce_sum: Reduce) -> None:
    sizes = [variable.shape.num_elements() for variable in variables]
    variable_of = np.repeat(np.arange(len(sizes)), sizes)  # for each element
    replicas = list(zip(*(variable.values for variable in variables), strict=True))
    own, packed = [], []
    for components in replicas:
        with tf.device(components[0].device):
            values = [tf.reshape(tf.cast(c.read_value(), dtype), [-1]) for c in components]
            own.append(tf.concat(values, axis=0))
            finite = tf.cast(tf.math.is_finite(own[-1]), dtype)
            counts = tf.math.segment_min(finite, variable_of)
            summand = tf.where(tf.gather(counts, variable_of) > 0, own[-1], tf.zeros_like(own[-1]))
            packed.append(tf.concat([summand, counts], axis=0))
    total = reduce_sum(_compat.PerReplica(packed))
    # TensorFlow does not wrap the value of a single local replica.
    totals = getattr(total, "values", (total,))
    for components, mine, both in zip(replicas, own, totals, strict=True):
        with tf.device(components[0].device):
            sums, counts = tf.split(both, [len(variable_of), len(sizes)])
            counts = tf.gather(counts, variable_of)
            means = tf.split(tf.where(counts > 0, sums / counts, mine), sizes)
            for component, mean in zip(components, means, strict=True):
                component.assign(tf.cast(tf.reshape(mean, component.shape), component.dtype))
