"""Functions of a replica that read variables on servers, and what they are under each strategy."""

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_utils

import tf_gc
from tests.parameter_server import servers

Weights = dict[str, tf.Variable]
Program = Callable[[Weights], Any]


def _loss(weight: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.sin(weight) * weight)


def _gradient(loss: Callable[[], tf.Tensor], *sources: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        value = loss()
    return tape.gradient(value, sources)


def read_before_the_tape(v: Weights) -> Any:
    before = _loss(v["a"])
    return before, _gradient(lambda: _loss(v["a"]), v["a"])


def read_while_the_tape_stops(v: Weights) -> Any:
    with tf.GradientTape() as tape:
        with tape.stop_recording():
            target = _loss(v["a"])
        loss = _loss(v["a"]) - target
    return tape.gradient(loss, v["a"])


def watched(v: Weights) -> Any:
    tf.identity(v["a"])
    with tf.GradientTape() as tape:
        loss = _loss(v["a"]) + _loss(v["b"]) + _loss(v["target"])
    return tape.gradient(loss, tape.watched_variables())


def second_derivative(v: Weights) -> Any:
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = _loss(v["a"] * v["b"])
        penalty = tf.reduce_sum(inner.gradient(loss, v["a"]) ** 2)
    return outer.gradient(penalty, [v["a"], v["b"]])


def recomputed(v: Weights) -> Any:
    block = tf.recompute_grad(lambda x: tf.sin(x * v["a"]) * v["a"])
    return _gradient(lambda: tf.reduce_sum(block(v["b"] * 2.0)), v["a"], v["b"])


def forward_derivative(v: Weights) -> Any:
    before = _loss(v["a"])
    with tf.autodiff.ForwardAccumulator(v["a"], tf.ones_like(v["b"])) as accumulator:
        loss = _loss(v["a"]) * 2.0
    return before, accumulator.jvp(loss)


def vectorized(v: Weights) -> Any:
    def of_row(row: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(tf.linalg.matvec(v["a"], row)))
        return loss, tape.gradient(loss, v["a"])

    return tf.vectorized_map(of_row, tf.reshape(tf.range(100.0), [2, 50]))


def loops(v: Weights) -> Any:
    with tf.GradientTape() as tape:
        _, total = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, total: (i + 1, total + tf.sin(v["a"] * total)),
            (0, v["b"] * 1.0),
        )
        loss = tf.reduce_sum(total) + _loss(v["a"])
    return tape.gradient(loss, [v["a"], v["b"]])


def tape_in_a_loop(v: Weights) -> Any:
    def body(i: tf.Tensor, total: tf.Tensor) -> Any:
        (gradient,) = _gradient(lambda: _loss(v["a"] + total), v["a"])
        return i + 1, total + 0.01 * gradient

    return tf.while_loop(lambda i, _: i < 3, body, (0, tf.zeros([60, 50])))[1]


def branches(v: Weights) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        losses = [
            tf.cond(
                tf.constant(choice), lambda: _loss(v["a"]) * 2.0, lambda: _loss(v["a"] * v["b"])
            )
            for choice in (True, False)
        ]
        loss = losses[0] + losses[1] + _loss(v["b"])
    return tape.gradient(loss, [v["a"], v["b"]]), tf.gradients(losses[1], [v["a"].handle])


def functions(v: Weights) -> Any:
    inner = tf.function(lambda: _loss(v["a"]) + _loss(v["a"] * v["b"]))
    inner()
    return _gradient(lambda: inner() + _loss(v["a"]), v["a"], v["b"])


def jacobian(v: Weights) -> Any:
    with tf.GradientTape() as tape:
        rows = tf.reduce_sum(tf.sin(v["a"]), axis=1)
    return tape.jacobian(rows, v["a"])


def written_in_between(v: Weights) -> Any:
    rows = tf.IndexedSlices(tf.ones([2, 50]), tf.constant([3, 3]))
    write = tf.function(lambda: v["a"].assign_add(tf.ones([60, 50])))
    write()
    v["target"].assign_add(tf.sin(v["a"]))
    for change in (
        lambda: v["a"].scatter_add(rows),
        lambda: v["a"].scatter_nd_add([[4]], tf.ones([1, 50])),
        lambda: tf.cond(tf.constant(True), write, lambda: tf.zeros([60, 50])),
        write,
        lambda: v["a"].assign_sub(tf.ones([60, 50])),
    ):
        change()
        v["target"].assign_add(tf.sin(v["a"]))
    return ()


def cached_reads(v: Weights) -> Any:
    with distribute_utils.cache_variable_reads():
        before = tf.identity(v["b"].read_value())
        v["b"].assign(2.0 * v["b"].read_value())
        after = tf.identity(v["b"].read_value())
    return before, after, tf.identity(v["b"])


def soft_update(v: Weights) -> Any:
    for _ in range(3):
        v["a"].assign(0.999 * v["a"] + 0.001 * v["b"])
    return ()


def hard_update(v: Weights) -> Any:
    with tf.GradientTape():
        _loss(v["b"])  # has been pulled before
        tf.cond(tf.constant(True), lambda: v["target"].assign(v["b"]), lambda: v["target"])
    return ()


def in_a_branch(v: Weights) -> Any:
    """As `keras.layers.SpectralNormalization` does it."""
    value = tf.cond(tf.constant(True), lambda: v["a"] / tf.norm(v["a"]), lambda: v["a"] * 1.0)
    v["a"].assign(value)
    return ()


def in_a_function(v: Weights) -> Any:
    half = tf.function(lambda: 0.5 * v["a"])
    v["target"].assign(half() + v["b"])
    v["a"].assign(half())
    return ()


def of_an_old_value(v: Weights) -> Any:
    old = v["a"] * 1.0
    v["a"].assign_add(old)
    v["target"].assign(old)
    return ()


def differences(v: Weights) -> Any:
    v["a"].assign_sub(0.5 * (v["a"] - v["b"]))
    v["b"].scatter_sub(tf.IndexedSlices(v["b"][3:5] * 0.1, tf.constant([3, 4])))
    return ()


READS: list[Program] = [
    *(read_before_the_tape, read_while_the_tape_stops, watched, second_derivative, recomputed),
    *(forward_derivative, vectorized, loops, tape_in_a_loop, branches, functions, jacobian),
    cached_reads,
]
WRITES: list[Program] = [
    *(written_in_between, soft_update, hard_update, in_a_branch, in_a_function, of_an_old_value),
    differences,
]


def results() -> dict[str, Any]:
    """The variables after each program, by strategy, and the values of those that write nothing."""
    resolver = servers.in_this_process(1)
    ours = functools.partial(tf_gc.CompressedParameterServerStrategy, resolver)
    strategies = {pull: ours(pull=pull) for pull in ("full", "bfloat16", "delta")}
    strategies["stock"] = tf.distribute.ParameterServerStrategy(resolver)
    return {
        name: {program.__name__: _result(strategy, program) for program in [*READS, *WRITES]}
        for name, strategy in strategies.items()
    }


def _result(strategy: Any, program: Program) -> Any:
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    random = np.random.default_rng(3)
    variables = {}
    for name in ("a", "b", "target"):
        value = random.normal(size=(60, 50)).astype(np.float32)
        if program in READS:  # what no pull rounds: a first pull of differences is exact, too
            value = value.astype(ml_dtypes.bfloat16).astype(np.float32)
        with strategy.scope():
            variables[name] = tf.Variable(value, trainable=name != "target")
    replica = functools.partial(program, variables)
    value = coordinator.schedule(tf.function(functools.partial(strategy.run, replica)))
    coordinator.join()
    left = [variable.numpy() for variable in variables.values()]
    return [*tf.nest.flatten(value.fetch() if program in READS else ()), *left]
