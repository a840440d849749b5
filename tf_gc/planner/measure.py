"""The time that this machine takes to compute a step, and to compress its gradients."""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.network.group import Replica
from tf_gc.params import Gradient
from tf_gc.planner.prediction import Cost, Gradients, SimulatedNetwork
from tf_gc.planner.time_model import Compute
from tf_gc.planner.workload import Workload
from tf_gc.schedule import Bucket, Schedule
from tf_gc.state.stored import stored_shape

# How often each time is measured; the median counts.
REPEATS = 10


def measure_compute(workload: Workload, repeats: int = REPEATS) -> Compute:
    """Returns medians of the times of a training step on this machine's first device."""
    model = workload.model
    variables = model.trainable_variables

    @tf.function
    def gradients() -> tf.Tensor:
        return _touch([value for value in _gradients(workload) if value is not None])

    @tf.function
    def step() -> tf.Tensor:
        pairs = zip(_gradients(workload), variables, strict=True)
        model.optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])
        return _touch([tf.convert_to_tensor(variable) for variable in variables])

    seconds = _medians([tf.function(workload.forward), gradients, step], repeats)
    until = list(itertools.accumulate(seconds, max))  # noise must not make a part negative
    return Compute(until[0], until[1] - until[0], until[2] - until[1])


def gradients_of(workload: Workload, run: bool = True) -> tuple[list[Any], Gradients]:
    """Returns the gradients of one step, `None` for a variable that has none, and their shapes.

    If it is not to run, they are symbolic, and on a GPU.
    """
    function = tf.function(lambda: _gradients(workload)).get_concrete_function()
    values = function() if run else function.structured_outputs
    known: list[Gradient | None] = []
    sparse_bytes = {}
    for value, variable in zip(values, workload.model.trainable_variables, strict=True):
        rows = isinstance(value, tf.IndexedSlices)
        if rows:
            parts = (value.values, value.indices)
            most = (math.prod(variable.shape), variable.shape[0])  # if only a step knows the rows
            sparse_bytes[len(known)] = sum(
                (part.shape.num_elements() or all_of_it) * part.dtype.size
                for part, all_of_it in zip(parts, most, strict=True)
            )
        shape = tuple(variable.shape)
        known.append(None if value is None else Gradient(variable.path, value.dtype, shape, rows))
    device = next((value.device for value in values if isinstance(value, tf.Tensor)), "CPU:0")
    return values, Gradients(tuple(known), sparse_bytes, device if run else "GPU:0")


class Costs:
    """Measures what it costs to compress a workload's gradients, each schedule once."""

    def __init__(self, workload: Workload, values: Sequence[Any], repeats: int = REPEATS) -> None:
        self._variables = [variable.value for variable in workload.model.trainable_variables]
        self._values = values
        self._repeats = repeats
        self._known: dict[tuple[int, str], Cost] = {}

    def __call__(self, schedule: Schedule, network: SimulatedNetwork) -> Cost:
        key = (network.hosts, str(schedule))
        if key not in self._known:
            self._known[key] = self._measured(schedule, network)
        return self._known[key]

    def _measured(self, schedule: Schedule, network: SimulatedNetwork) -> Cost:
        if not schedule.buckets:
            return Cost(0.0, ())
        options = tf.distribute.experimental.CommunicationOptions()
        replicas = [self._replica(bucket, network.devices[0]) for bucket in schedule.buckets]

        @tf.function
        def reduce() -> tuple[tf.Tensor, tf.Tensor]:
            sums: list[Any] = []
            sizes = []
            for i, (bucket, replica) in enumerate(zip(schedule.buckets, replicas, strict=True)):
                with tf.control_dependencies([_touch(sums)] if sums else []):
                    reduction = bucket.reducer.reduce(i, [replica], options)
                sums = list(reduction.sums[0])
                sizes.append(tf.cast(reduction.sent_bytes, tf.int64))
            return _touch(sums), tf.stack(sizes)

        (seconds,) = _medians([lambda: reduce()[0]], self._repeats)
        measured = zip(reduce()[1].numpy().tolist(), network.channels, strict=True)
        return Cost(seconds, tuple((size, it.rounds, it.collectives) for size, it in measured))

    def _replica(self, bucket: Bucket, device: str) -> Replica:
        shapes = [gradient.shape for gradient in bucket.gradients]
        slots = map(bucket.reducer.slot, shapes)
        kept = bucket.reducer.residual_dtype
        return Replica(
            device,
            gradients=[self._values[i] for i in bucket.indices],
            residuals=[_zeros(shape, kept) for shape in shapes if kept],
            variables=[self._variables[i] for i in bucket.indices],
            shared=[_zeros([slot.size]) for slot in slots if slot is not None],
        )


def _zeros(shape: Sequence[int], dtype: tf.DType = tf.float32) -> tf.Variable:
    return tf.Variable(tf.zeros(stored_shape(shape, dtype), dtype), trainable=False)


def _gradients(workload: Workload) -> list[Any]:
    variables = workload.model.trainable_variables
    with tf.GradientTape() as tape:
        loss = workload.model.optimizer.scale_loss(workload.forward())
    return tape.gradient(loss, variables)


def _touch(values: Sequence[Any]) -> tf.Tensor:
    """Returns a scalar that is not known before all values are, on whatever device."""
    dense = [value.values if isinstance(value, tf.IndexedSlices) else value for value in values]
    return tf.add_n([tf.cast(tf.reshape(value, [-1])[0], tf.float32) for value in dense])


def _medians(functions: Sequence[Callable[[], tf.Tensor]], repeats: int) -> list[float]:
    """Returns the median seconds of each function; they run in turn, and meet the same noise."""
    for function in functions:
        for _ in range(2):  # to trace and to warm up
            function().numpy()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, times in zip(functions, seconds, strict=True):
            start = time.perf_counter()
            function().numpy()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in seconds]
