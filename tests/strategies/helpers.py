"""Running one reduction of gradients under a strategy."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc
from tests.keras.stock import cpus


def strategy_of(params: Any = None, replicas: int = 2) -> tf_gc.CompressedMirroredStrategy:
    return tf_gc.CompressedMirroredStrategy(cpus(replicas), params)


def variables_of(strategy: Any, *shapes: tuple[int, ...], **named: Any) -> list[tf.Variable]:
    """Returns variables of these shapes, the last ones with these names."""
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]
        return variables + [tf.Variable(tf.zeros(n), name=name) for name, n in named.items()]


def normal(
    shapes: Iterable[Sequence[int]], seed: int, replicas: int = 2, scale: float = 1.0
) -> list[np.ndarray]:
    """Returns random gradients, float32 [replicas, ...], of variables of these shapes."""
    random = np.random.default_rng(seed)
    return [random.normal(scale=scale, size=(replicas, *shape)).astype("f") for shape in shapes]


def reducer(
    strategy: tf.distribute.Strategy,
    variables: Sequence[tf.Variable],
    eager: bool = False,
    bucket_bytes: int = 0,
) -> Callable[[Sequence[np.ndarray]], list[list[np.ndarray]]]:
    """Returns a function from [replicas, ...] gradients, one for each variable, to sums.

    The sums are a list for each replica, with an array for each variable.
    """
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bucket_bytes)

    def reduce(strategy: tf.distribute.Strategy, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return strategy.extended.batch_reduce_to(
            tf.distribute.ReduceOp.SUM, list(zip(gradients, variables, strict=True)), options
        )

    def step(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        def replica_step() -> list[tf.Tensor]:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = [gradient[replica] for gradient in gradients]
            if bucket_bytes:  # which all_reduce_gradients leaves to the strategy
                return tf.distribute.get_replica_context().merge_call(reduce, args=(mine,))
            return tf_gc.all_reduce_gradients(list(zip(mine, variables, strict=True)))

        return strategy.run(replica_step)

    traced = step if eager else tf.function(step)

    def run(gradients: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        sums = traced([tf.constant(gradient) for gradient in gradients])
        local = [strategy.experimental_local_results(value) for value in sums]
        return [[value.numpy() for value in values] for values in zip(*local, strict=True)]

    return run


def summing(
    params: Any, *shapes: tuple[int, ...], replicas: int = 2, **options: Any
) -> tuple[tf_gc.CompressedMirroredStrategy, Callable[[Any], list[list[np.ndarray]]]]:
    """Returns a strategy with variables of these shapes, and what sums their gradients."""
    strategy = strategy_of(params, replicas)
    return strategy, reducer(strategy, variables_of(strategy, *shapes), **options)


def check_that_nothing_is_lost(
    strategy: Any,
    variables: Sequence[tf.Variable],
    run: Callable[[Any], Any],
    steps: Iterable[Sequence[np.ndarray]],
    **tolerance: float,
) -> list[list[list[np.ndarray]]]:
    """Checks that replicas get one sum, and that sums plus residuals are all gradients.

    Returns what `run` returned in each step.
    """
    given, sent = ([np.zeros(v.shape) for v in variables] for _ in range(2))
    results = []
    for gradients in steps:
        results.append(run(gradients))
        first, *others = results[-1]
        np.testing.assert_equal(others, [first] * len(others))
        for i, gradient in enumerate(gradients):
            given[i] += gradient.sum(0, np.float64)
            sent[i] += first[i]
    for i, variable in enumerate(variables):
        left = strategy.compression_state.total(variable)
        total = sent[i] if left is None else sent[i] + left
        np.testing.assert_allclose(total, given[i], **tolerance)
    return results


def ancestors(operation: tf.Operation) -> set[tf.Operation]:
    """The operations that have to run before this one."""
    found: set[tf.Operation] = set()
    waiting = [operation]
    while waiting:
        one = waiting.pop()
        for before in (*(tensor.op for tensor in one.inputs), *one.control_inputs):
            if before not in found:
                found.add(before)
                waiting.append(before)
    return found
