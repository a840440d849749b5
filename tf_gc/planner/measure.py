"""What this machine takes to compute a step, and to encode and decode its gradients."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_gc.distribute.devices import check_devices
from tf_gc.params import Gradient
from tf_gc.planner.prediction import Choice, CodecCost, Gradients, schedule_of
from tf_gc.planner.subject import Subject
from tf_gc.planner.time_model import Compute, Link
from tf_gc.reduction.group import LocalNetwork

# Decoding is measured with so many messages; the difference is what one more costs.
_FEW, _MANY = 2, 16


def measure_compute(subject: Subject, repeats: int) -> Compute:
    """Returns medians of the times of a training step on this machine's first device."""
    model = subject.model
    variables = model.trainable_variables

    @tf.function
    def forward() -> tf.Tensor:
        return subject.forward()

    @tf.function
    def gradients() -> tf.Tensor:
        return _touch([value for value in _gradients(subject) if value is not None])

    @tf.function
    def step() -> tf.Tensor:
        pairs = zip(_gradients(subject), variables, strict=True)
        model.optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])
        return _touch([tf.convert_to_tensor(variable) for variable in variables])

    seconds = _medians([forward, gradients, step], repeats)
    until = list(itertools.accumulate(seconds, max))  # noise must not make a part negative
    return Compute(until[0], until[1] - until[0], until[2] - until[1])


def compute_gradients(subject: Subject) -> list[tf.Tensor | tf.IndexedSlices | None]:
    """Returns the gradients of one step, `None` for a variable that has none."""
    return tf.function(lambda: _gradients(subject))()


def describe(subject: Subject, values: Sequence[Any]) -> Gradients:
    """Returns what the prediction needs to know of the gradients.

    Args:
      subject: the model.
      values: what `compute_gradients` returned.
    """
    known: list[Gradient | None] = []
    sparse = []
    for value, variable in zip(values, subject.model.trainable_variables, strict=True):
        dense = isinstance(value, tf.Tensor)
        known.append(Gradient(variable.path, value.dtype, int(tf.size(value))) if dense else None)
        if isinstance(value, tf.IndexedSlices):
            sparse.append(_bytes(value.values) + _bytes(value.indices))
    states = map(tf.convert_to_tensor, subject.model.non_trainable_variables)
    state = sum(_bytes(value) for value in states if value.dtype.is_floating)
    return Gradients(tuple(known), tuple(sparse), state)


def measure_codec(
    choice: Choice, gradients: Gradients, values: Sequence[Any], repeats: int
) -> dict[str, CodecCost]:
    """Returns what a choice takes for these gradients, by wire; nothing if it compresses nothing.

    Args:
      choice: how gradients are sent.
      gradients: what `describe` returned.
      values: what `compute_gradients` returned.
      repeats: of how many times to take the median.

    Raises:
      ValueError: if the native ops were not built for the device of the gradients.
    """
    buckets = schedule_of(choice, gradients, Link(2, 1e9)).buckets
    if not buckets:
        return {}
    tensors = [[values[i] for i in bucket.indices] for bucket in buckets]
    check_devices(choice.params, LocalNetwork([tensors[0][0].device] * 2))
    residuals = [
        [tf.Variable(tf.zeros(value.shape), trainable=False) for value in of_bucket]
        for of_bucket in tensors
    ]

    def messages() -> list[tf.Tensor]:
        made: list[tf.Tensor] = []
        for bucket, of_bucket, rests in zip(buckets, tensors, residuals, strict=True):
            with tf.control_dependencies(made[-1:]):  # one after another
                made.append(bucket.codec.encode(of_bucket, rests))
        return made

    encoded = list(tf.function(messages)())

    def decode(copies: int) -> Callable[[], tf.Tensor]:
        @tf.function
        def decode_all() -> tf.Tensor:
            sums: list[tf.Tensor] = []
            for bucket, of_bucket, message in zip(buckets, tensors, encoded, strict=True):
                with tf.control_dependencies(sums[-1:]):
                    sums += bucket.codec.decode([message] * copies, of_bucket)
            return _touch(sums)

        return decode_all

    encode = tf.function(lambda: _touch(messages()))
    seconds = _medians([encode, decode(_FEW), decode(_MANY)], repeats)
    elements = sum(bucket.elements for bucket in buckets)
    add = max(seconds[2] - seconds[1], 0) / (_MANY - _FEW)
    cost = CodecCost(
        encode=seconds[0] / elements,
        decode=max(seconds[1] - _FEW * add, 0) / elements,
        add=add / elements,
        bits=8 * sum(map(_bytes, encoded)) / elements,
    )
    return {buckets[0].wire: cost}


def _gradients(subject: Subject) -> list[Any]:
    variables = subject.model.trainable_variables
    with tf.GradientTape() as tape:
        loss = subject.model.optimizer.scale_loss(subject.forward())
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


def _bytes(value: tf.Tensor) -> int:
    return int(tf.size(value)) * value.dtype.size
