"""Keras optimizers in the replicas of a custom loop."""

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.conformance.promise import (
    MODES,
    assert_on_all,
    local,
    number_of_workers,
    promise,
    replica,
    staged,
)

Strategy = tf.distribute.Strategy
Optimizer = keras.optimizers.Optimizer

# The second is large enough to be compressed by default.
SHAPES = ((3,), (64, 40))
STEPS = 4

_random = np.random.default_rng(3)
_gradients = [_random.normal(size=shape).astype(np.float32) for shape in SHAPES]

OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    "Lamb": lambda: keras.optimizers.Lamb(0.1),
    "Adafactor": lambda: keras.optimizers.Adafactor(0.1),
    "decay": lambda: keras.optimizers.SGD(0.1, weight_decay=0.1),
    "moving average": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5),
}
CLIPPING: dict[str, dict[str, float]] = {
    "norm": {"clipnorm": 0.5},
    "global norm": {"global_clipnorm": 0.5},
    "value": {"clipvalue": 0.1},
}
COUNTING: dict[str, dict[str, Any]] = {
    "accumulation": {"gradient_accumulation_steps": 2},
    "overwriting": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
}


Step = Callable[[Optimizer, list[Any], tf.Tensor], None]


def gradients(step: Any, share: Any) -> list[tf.Tensor]:
    """Returns a replica's gradients; they grow, so that compression does not begin."""
    factor = tf.cast(share, tf.float32) * tf.cast(step + 1, tf.float32)
    return [factor * each for each in _gradients]


def state(strategy: Strategy, make: Callable[[], Optimizer], step: Step, mode: str) -> Any:
    """Returns all variables after some steps, which the replicas have to agree on."""
    with strategy.scope():
        variables = [
            keras.Variable(np.ones(shape, np.float32), name=f"v{i}")
            for i, shape in enumerate(SHAPES)
        ]
        optimizer = make()
        optimizer.build(variables)
    run = staged(mode, lambda n: strategy.run(step, args=(optimizer, variables, n)))
    for number in range(STEPS):
        run(tf.constant(number))
    everything = [*variables, *optimizer.variables]
    for variable in everything:
        first, *others = local(strategy, variable.value)
        for other in others:
            np.testing.assert_array_equal(other, first)
    return [variable.numpy() for variable in everything]


def assert_steps_as_alone(
    strategy: Strategy,
    make: Callable[[], Optimizer],
    mode: str = "function",
    alone: Step | None = None,
) -> None:
    """An optimizer steps as one does by itself with the sum of all gradients."""
    total = sum(range(1, strategy.num_replicas_in_sync + 1))

    def together(optimizer: Optimizer, variables: list[Any], number: tf.Tensor) -> None:
        optimizer.apply(gradients(number, replica() + 1), variables)

    def by_itself(optimizer: Optimizer, variables: list[Any], number: tf.Tensor) -> None:
        optimizer.apply(gradients(number, total), variables)

    actual = state(strategy, make, together, mode)
    expected = state(tf.distribute.get_strategy(), make, alone or by_itself, "function")
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@promise(each=OPTIMIZERS, on_workers=("Adam", "decay", "moving average"))
def optimizers_apply_the_sum_of_the_replicas_gradients(strategy: Strategy, name: str) -> None:
    assert_steps_as_alone(strategy, OPTIMIZERS[name])


@promise()
def optimizers_run_eagerly(strategy: Strategy) -> None:
    assert_steps_as_alone(strategy, OPTIMIZERS["Adam"], "eager")


# Under the stock strategies Keras decides in each replica, where replicas cannot meet.
@promise(each=COUNTING, broken_by_stock="both")
def what_happens_in_some_steps_happens_on_all_replicas(strategy: Strategy, name: str) -> None:
    assert_steps_as_alone(strategy, lambda: keras.optimizers.SGD(0.1, **COUNTING[name]))


@promise(each=CLIPPING, on_workers=("global norm",))
def each_replica_clips_its_gradients(strategy: Strategy, name: str) -> None:
    def make() -> Optimizer:
        return keras.optimizers.SGD(0.1, **CLIPPING[name])

    clip = make()._clip_gradients

    def alone(optimizer: Optimizer, variables: list[Any], number: tf.Tensor) -> None:
        of_replicas = [clip(gradients(number, i + 1)) for i in range(strategy.num_replicas_in_sync)]
        for variable, *clipped in zip(variables, *of_replicas, strict=True):
            variable.assign_sub(0.1 * tf.add_n(clipped))
        optimizer.iterations.assign_add(1)

    assert_steps_as_alone(strategy, make, alone=alone)


@promise(each=itertools.product(("apply_gradients", "apply"), MODES))
def a_gradient_may_be_one_tensor_for_all_replicas(
    strategy: Strategy, method: str, mode: str
) -> None:
    """Several local replicas have summed it before: it is applied once.

    The only replica of a worker cannot tell it from a gradient of its own.
    """
    with strategy.scope():
        variables = [keras.Variable(np.ones(shape, np.float32)) for shape in SHAPES]
        optimizer = keras.optimizers.SGD(0.5)
        optimizer.build(variables)
    shared = [tf.ones(shape) for shape in SHAPES]

    def step() -> None:
        if method == "apply":
            optimizer.apply(shared, variables)
        else:
            optimizer.apply_gradients(zip(shared, variables, strict=True))

    staged(mode, lambda: strategy.run(step))()
    for variable, shape in zip(variables, SHAPES, strict=True):
        alone = len(strategy.extended.worker_devices) == 1
        times = number_of_workers(strategy) if alone else 1
        expected = np.full(shape, 1 - 0.5 * times)
        assert_on_all(strategy, variable.value, expected)
