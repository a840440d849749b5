"""Two models of one strategy, trained at the same time in two threads."""

import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.keras import stock
from tests.keras.compressed import AUTO, FIXED, NONE, compressed_strategy

STEPS = 100
# Tensors of the two models have the same names and some the same shapes, so that residuals and
# collectives could be mixed up.
SHAPES = ([(40, 70), (300,)], [(40, 70), (17, 33), (300,)])


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Trainer:
    """A model's variables, and a step that moves them by the sums of random gradients."""

    def __init__(self, strategy: tf.distribute.Strategy, seed: int) -> None:
        self._strategy = strategy
        with strategy.scope():
            self.variables = [
                tf.Variable(tf.zeros(shape), name=f"kernel_{i}")
                for i, shape in enumerate(SHAPES[seed])
            ]

        def replica_step(number: tf.Tensor) -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            pairs = [
                (
                    tf.random.stateless_normal(
                        variable.shape, tf.stack([number, 1000 * i + 10 * seed + replica])
                    ),
                    variable,
                )
                for i, variable in enumerate(self.variables)
            ]
            sums = tf_gc.all_reduce_gradients(pairs)
            for total, variable in zip(sums, self.variables, strict=True):
                variable.assign_sub(0.1 * total)

        self._step = tf.function(lambda number: strategy.run(replica_step, args=(number,)))

    def first_step(self) -> None:
        """Traces the step, which takes longer than the others together."""
        self._step(tf.constant(0))

    def other_steps(self) -> None:
        for number in range(1, STEPS):
            self._step(tf.constant(number))

    def state(self) -> list[np.ndarray]:
        """The variables of all replicas, and what has not been sent of them."""
        components = [value.numpy() for variable in self.variables for value in variable.values]
        totals = [self._strategy.compression_state.total(v) for v in self.variables]
        return components + [total for total in totals if total is not None]


def in_threads(*work: Callable[[], None]) -> None:
    """Runs functions side by side and raises what one of them raises."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(work))

    def body(function: Callable[[], None]) -> None:
        try:
            barrier.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(f,), daemon=True) for f in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)
        assert not thread.is_alive(), "the steps of two models wait for each other"
    if errors:
        raise errors[0]


# With None some of the tensors are small, and go to TensorFlow's collectives; with NONE all do.
@cases(
    "params, replicas",
    (None, 3),
    *((AUTO, 2), (FIXED, 3), (NONE, 2)),
    (tf_gc.TwoBit(warm_up=False, bypass_size=0, plan="scatter_gather"), 3),
    ids=str,
)
def test_steps_of_two_models_do_not_meet(
    params: tf_gc.params.CompressionParams | None, replicas: int
) -> None:
    strategies = [compressed_strategy(replicas, params) for _ in range(2)]
    one_by_one, at_once = [[Trainer(strategy, seed) for seed in (0, 1)] for strategy in strategies]
    for trainer in one_by_one:
        trainer.first_step()
        trainer.other_steps()
    in_threads(*[trainer.first_step for trainer in at_once])
    in_threads(*[trainer.other_steps for trainer in at_once])
    assert len(strategies[0].compression_state) == len(strategies[1].compression_state)
    for alone, beside in zip(one_by_one, at_once, strict=True):
        for expected, value in zip(alone.state(), beside.state(), strict=True):
            assert expected.any()  # something was trained
            stock.assert_same_bits(expected, value)
