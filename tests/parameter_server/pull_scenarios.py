"""A coordinator that has workers pull from parameter servers."""

import functools
import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.parameter_server import servers

Array = np.ndarray[Any, Any]


def pulls(pull: str, steps: int) -> dict[str, Any]:
    """A worker pulls a variable that changes between its steps, and then does not."""
    resolver = servers.in_this_process(1)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, pull=pull)
    random = np.random.default_rng(3)
    with strategy.scope():
        variable = tf.Variable(random.normal(size=(50, 60)).astype(np.float32))

    def replica() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            once, again = tf.identity(variable), variable * 2.0
            loss = tf.reduce_sum(once * 3.0 + again)
        return once, again, tape.gradient(loss, variable)

    # A tf.function given to strategy.run is the function of the replica, too.
    reads = servers.Steps(strategy, tf.function(replica) if pull == "delta" else replica)

    def step() -> Array:
        once, again, gradient = reads.run(1)[-1]
        np.testing.assert_array_equal(again, once * 2)
        np.testing.assert_array_equal(gradient, np.full(once.shape, 5.0))
        return once

    results: dict[str, Any] = {"moving": [], "resting": []}
    for _ in range(steps):
        results["moving"].append((variable.numpy(), step()))
        variable.assign_add(0.1 * random.normal(size=variable.shape).astype(np.float32))
    for _ in range(steps):
        results["resting"].append((variable.numpy(), step()))
    whole = variable.numpy()
    variable.assign(np.where(np.arange(60) == 7, np.inf, whole))
    results["infinite"] = (variable.numpy(), step())
    variable.assign(whole)
    results["finite"] = [(whole, step()) for _ in range(steps)]
    graph = reads.function.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    results["ops"] = [node.op for node in nodes]
    if pull == "delta":
        cache = variable.cache
        (has,), (minus,) = cache.on_worker.values, cache.minus.values
        results["has"], results["believed"] = has.numpy(), -minus.numpy()
        (last,) = cache.last_of_worker.values
        variable.assign_add(tf.ones_like(variable))
        last.assign(0)  # as after a restart of the worker
        results["restarted"] = (variable.numpy(), step())
        # The worker lives, but cannot take the message.
        whole = variable.numpy()
        variable.assign_add(tf.ones_like(variable))
        copy = has.numpy()
        tf.raw_ops.AssignVariableOp(resource=has.handle, value=tf.zeros([3]))
        with pytest.raises(tf.errors.InvalidArgumentError):
            servers.Steps(strategy, replica).run(1)
        tf.raw_ops.AssignVariableOp(resource=has.handle, value=copy)
        results["lost"] = (variable.numpy(), step())
        # The first pull of a worker that has started anew meets infinity.
        variable.assign(np.where(np.arange(60) == 7, np.inf, whole))
        last.assign(0)
        results["infinite at first"] = (variable.numpy(), step())
        variable.assign(whole)
        results["finite again"] = [(whole, step()) for _ in range(steps)]
    return results


def crossings(pull: str) -> dict[str, Any]:
    """The bytes that a step hands from device to device."""
    resolver = servers.in_this_process(1)
    params = tf_gc.Quantized(warm_up=False)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, None, params, pull=pull)
    with strategy.scope():
        matrix, bias = tf.Variable(tf.ones([60, 50])), tf.Variable(tf.ones([7]))
        optimizer = keras.optimizers.SGD(0.5)
        optimizer.build([matrix, bias])

    def replica() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(matrix, matrix, transpose_b=True)) + tf.norm(bias)
        gradients = tape.gradient(loss, [matrix, bias])
        optimizer.apply_gradients(zip(gradients, [matrix, bias], strict=True))
        before = tf.reduce_sum(loss)
        with tf.device(matrix.device):
            matrix.assign(tf.zeros(matrix.shape))
        return before, tf.reduce_sum(tf.abs(matrix))

    steps = servers.Steps(strategy, replica)
    ((_, after),) = steps.run(1)
    graph = steps.function.get_concrete_function().graph
    devices = {inner.name: outer.device for outer, inner in graph.captures}

    def is_on_server(operation: tf.Operation) -> bool:
        # An op that uses a variable runs where the variable is.
        uses = [devices[each.name] for each in operation.inputs if each.name in devices]
        return "ps" in (uses[0] if uses else operation.device)

    return {
        "bytes": [
            tensor.shape.num_elements() * tensor.dtype.size
            for operation in graph.get_operations()
            for tensor in operation.inputs
            if tensor.dtype != tf.resource
            and tensor.shape.is_fully_defined()
            and is_on_server(operation) != is_on_server(tensor.op)
        ],
        "traffic": (strategy.traffic.pushed, strategy.traffic.pulled, str(strategy.traffic)),
        "after writing": float(after),
    }


def recurrent(pull: str) -> dict[str, Any]:
    """Computes gradients of a recurrent layer on a worker and here; and writes in a loop."""
    resolver = servers.in_this_process(1)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, pull=pull)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6, 32)), keras.layers.LSTM(40)])
        matrix = tf.Variable(tf.ones([60, 50]))
    x = np.random.default_rng(1).normal(size=(4, 6, 32)).astype(np.float32)

    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    steps = servers.Steps(strategy, gradients)
    (on_worker,) = steps.run(1)
    graph = steps.function.get_concrete_function().graph.as_graph_def()
    bodies = [f for f in graph.library.function if "while" in f.signature.name]

    def write_in_loop() -> None:
        for _ in tf.range(3):
            matrix.assign(matrix + 1)

    with pytest.raises(NotImplementedError, match="Put the loop around"):
        tf.function(functools.partial(strategy.run, write_in_loop)).get_concrete_function()
    return {
        "on worker": on_worker,
        "here": [gradient.numpy() for gradient in gradients()],
        "in loops": {n.op for f in bodies for n in f.node_def if "Read" in n.op or n.op == "If"},
        "loops": len(bodies),
    }


def two_traces() -> set[str]:
    """The ops that read a variable in a loop, built while another thread builds a function."""
    strategy = tf_gc.CompressedParameterServerStrategy(servers.in_this_process(1))
    with strategy.scope():
        matrix = tf.Variable(tf.ones([60, 50]))
        other = tf.Variable(tf.ones([60, 50]))
    begun, written, read = (threading.Event() for _ in range(3))

    def reading() -> tf.Tensor:
        begun.set()
        written.wait(60)
        total = tf.zeros([60, 50])
        for _ in tf.range(3):
            total += matrix
        return total

    def writing() -> None:
        begun.wait(60)
        other.assign_add(other)
        written.set()
        read.wait(60)

    reader, writer = (tf.function(functools.partial(strategy.run, f)) for f in (reading, writing))
    beside = threading.Thread(target=writer.get_concrete_function)
    beside.start()
    graph = reader.get_concrete_function().graph.as_graph_def()
    read.set()
    beside.join()
    bodies = [f for f in graph.library.function if "while" in f.signature.name]
    assert bodies
    return {node.op for body in bodies for node in body.node_def if "Read" in node.op}
