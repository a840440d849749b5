"""What this machine takes to compute a step, and to encode and decode its gradients."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf

from tf_gc.cluster.devices import check_devices
from tf_gc.network.group import LocalNetwork
from tf_gc.params import Gradient
from tf_gc.planner.prediction import Choice, CodecCost, Gradients, codes_of, schedule_of
from tf_gc.planner.subject import Subject, UsageError
from tf_gc.planner.time_model import Compute, Link
from tf_gc.reducers.factors import Matrices
from tf_gc.reducers.low_rank import FactorsReducer
from tf_gc.reducers.plan import Plan
from tf_gc.reducers.rows import ROWS, RowsReducer
from tf_gc.reducers.wire import COMPACT_BELOW, PACKED
from tf_gc.schedule import Bucket

# Decoding is measured with so many messages; the difference is what one more costs.
_FEW, _MANY = 2, 16

# Links of which each has another wire, from slow to fast.
_RATES = (COMPACT_BELOW / 2, 2 * COMPACT_BELOW)
_LINKS = [Link(2, rate, launch=0, latency=0, byte=0) for rate in _RATES]


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
        rows = isinstance(value, tf.IndexedSlices)
        shape = tuple(variable.shape)
        known.append(None if value is None else Gradient(variable.path, value.dtype, shape, rows))
        if rows:
            sparse.append(_bytes(value.values) + _bytes(value.indices))
    states = map(tf.convert_to_tensor, subject.model.non_trainable_variables)
    state = sum(_bytes(value) for value in states if value.dtype.is_floating)
    device = next((value.device for value in values if isinstance(value, tf.Tensor)), "/CPU:0")
    kind = tf.DeviceSpec.from_string(device).device_type
    return Gradients(tuple(known), tuple(sparse), state, kind)


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
      UsageError: if the native ops were not built for the device of the gradients.
    """
    costs = {}
    for link in _LINKS:
        scheduled = schedule_of(choice, gradients, link).buckets
        buckets = [bucket for bucket in scheduled if isinstance(bucket.reducer, Plan)]
        rows = [bucket for bucket in scheduled if isinstance(bucket.reducer, RowsReducer)]
        factors = [bucket for bucket in scheduled if isinstance(bucket.reducer, FactorsReducer)]
        if factors and FactorsReducer.wire not in costs:
            costs[FactorsReducer.wire] = _measure_factors(factors, values, repeats)
        if rows and ROWS not in costs:
            costs[ROWS] = _measure_rows(rows, values, repeats)
        if buckets and buckets[0].reducer.wire not in costs:
            tensors = [[values[i] for i in bucket.indices] for bucket in buckets]
            try:
                check_devices(choice.params, LocalNetwork([tensors[0][0].device] * 2))
            except ValueError as error:
                raise UsageError(str(error)) from None
            costs[buckets[0].reducer.wire] = _measure_buckets(buckets, tensors, repeats)
    return costs


def _measure_buckets(
    buckets: Sequence[Bucket], tensors: Sequence[Sequence[tf.Tensor]], repeats: int
) -> CodecCost:
    """Returns what buckets of one codec and wire take, given their gradients."""
    residuals = [
        [tf.Variable(tf.zeros(value.shape), trainable=False) for value in of_bucket]
        for of_bucket in tensors
    ]

    @tf.function
    def encode() -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
        messages: list[tf.Tensor] = []
        sent: list[tf.Tensor] = []
        for bucket, of_bucket, rests in zip(buckets, tensors, residuals, strict=True):
            with tf.control_dependencies(sent[-1:]):  # one after another
                messages.append(codes_of(bucket).codec.encode(of_bucket, rests))
                sent.append(_packed(bucket, of_bucket, messages[-1]))
        return _touch(sent), messages, sent

    @tf.function
    def unpack() -> tf.Tensor:
        unpacked: list[tf.Tensor] = []
        for bucket, message, compact in zip(buckets, messages, sent, strict=True):
            with tf.control_dependencies(unpacked[-1:]):
                unpacked.append(codes_of(bucket).codec.unpack(compact, message.shape[1]))
        return _touch(unpacked)

    def decode(copies: int) -> Callable[[], tf.Tensor]:
        @tf.function
        def decode_all() -> tf.Tensor:
            sums: list[tf.Tensor] = []
            for bucket, of_bucket, message in zip(buckets, tensors, messages, strict=True):
                with tf.control_dependencies(sums[-1:]):
                    sums += codes_of(bucket).codec.decode([message] * copies, of_bucket)
            return _touch(sums)

        return decode_all

    (encoding,) = _medians([lambda: encode()[0]], repeats)
    _, messages, sent = encode()  # by now the residuals are no longer zero
    few, many = _medians([decode(_FEW), decode(_MANY)], repeats)
    unpacking = 0.0 if buckets[0].reducer.wire == PACKED else _medians([unpack], repeats)[0]
    elements = sum(bucket.elements for bucket in buckets)
    add = max(many - few, 0) / (_MANY - _FEW)
    return CodecCost(
        encode=encoding / elements,
        unpack=unpacking / elements,
        decode=max(few - _FEW * add, 0) / elements,
        add=add / elements,
        bits=8 * sum(map(_bytes, sent)) / elements,
    )


def _measure_rows(buckets: Sequence[Bucket], values: Sequence[Any], repeats: int) -> CodecCost:
    """Returns what all buckets of rows take together."""
    reducers = [cast(RowsReducer, bucket.reducer) for bucket in buckets]
    rows = [[values[i] for i in bucket.indices] for bucket in buckets]
    residuals = [
        [tf.Variable(tf.zeros(shape), trainable=False) for shape in bucket.shapes]
        if bucket.reducer.keeps_residuals
        else []
        for bucket in buckets
    ]

    @tf.function
    def encode() -> tuple[tf.Tensor, list[tf.Tensor]]:
        sent = [
            reducer.message(of_bucket, rests, bucket.shapes, bucket.variables)
            for bucket, reducer, of_bucket, rests in zip(
                buckets, reducers, rows, residuals, strict=True
            )
        ]
        return _touch(sent), sent

    def decode(copies: int) -> Callable[[], tf.Tensor]:
        @tf.function
        def decode_all() -> tf.Tensor:
            sums: list[tf.IndexedSlices] = []
            for bucket, reducer, of_bucket, message in zip(
                buckets, reducers, rows, messages, strict=True
            ):
                sums += reducer.sums(bucket.shapes, [message] * copies, of_bucket)
            return _touch(sums)

        return decode_all

    (encoding,) = _medians([lambda: encode()[0]], repeats)
    _, messages = encode()
    few, many = _medians([decode(_FEW), decode(_MANY)], repeats)
    add = max(many - few, 0) / (_MANY - _FEW)
    return CodecCost(
        encode=encoding,
        unpack=0,
        decode=max(few - _FEW * add, 0),
        add=add,
        bits=8 * sum(map(_bytes, messages)),
    )


def _measure_factors(buckets: Sequence[Bucket], values: Sequence[Any], repeats: int) -> CodecCost:
    """Returns what buckets of factors take; to encode is what comes before the last sum."""
    matrices = []
    for bucket in buckets:
        of_bucket = [values[i] for i in bucket.indices]
        reducer = cast(FactorsReducer, bucket.reducer)
        residuals = [tf.Variable(tf.zeros(shape)) for shape in bucket.shapes]
        factors = [tf.zeros([reducer.slot(shape).size]) for shape in bucket.shapes]
        device = of_bucket[0].device
        matrices.append(Matrices(device, of_bucket, residuals, factors, reducer.rank))

    @tf.function
    def encode() -> tuple[tf.Tensor, list[tf.Tensor], list[tuple[tf.Tensor, tf.Tensor]]]:
        projected = [each.project() for each in matrices]
        encoded = [each.encode(p) for each, p in zip(matrices, projected, strict=True)]
        return _touch([message for message, _ in encoded]), projected, encoded

    @tf.function
    def decode() -> tf.Tensor:
        sums: list[tf.Tensor] = []
        for each, (message, basis) in zip(matrices, encoded, strict=True):
            sums += each.decode(message, basis)[0]
        return _touch(sums)

    _, projected, encoded = encode()
    encoding, decoding = _medians([lambda: encode()[0], decode], repeats)
    elements = sum(bucket.elements for bucket in buckets)
    sent = [*projected, *(message for message, _ in encoded)]
    return CodecCost(
        encode=encoding / elements,
        unpack=0,
        decode=decoding / elements,
        add=0,
        bits=8 * sum(map(_bytes, sent)) / elements,
    )


def _packed(bucket: Bucket, gradients: Sequence[tf.Tensor], message: tf.Tensor) -> tf.Tensor:
    """Returns what travels of a bucket's message."""
    codes = codes_of(bucket)
    if codes.wire == PACKED:
        return message
    compact, lengths = codes.codec.pack(message, gradients)
    return compact[:, : lengths[0]]


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
