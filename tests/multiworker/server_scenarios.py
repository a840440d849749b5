"""What a coordinator does in the tests of parameter servers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tests.multiworker import servers

Array = np.ndarray[Any, Any]


def ledger(many_params: list[Any], workers: int, steps: int, pull: str) -> list[dict[str, Any]]:
    """Pushes gradients of a matrix, a table and a bias; and returns what came of them."""
    resolver = servers.in_this_process(workers, 2)
    return [_ledger(resolver, params, workers, steps, pull) for params in many_params]


def _ledger(resolver: Any, params: Any, workers: int, steps: int, pull: str) -> dict[str, Any]:
    strategy = tf_gc.CompressedParameterServerStrategy(
        resolver, compression_params=params, pull=pull
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    shapes = [(50, 80), (60, 40), (7,)]
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape), name=f"v{i}") for i, shape in enumerate(shapes)]
        arrived = [tf.Variable(tf.zeros(shape, tf.float64)) for shape in shapes]
    random = np.random.default_rng(1)
    matrices = random.normal(size=(steps, workers, *shapes[0])).astype(np.float32)
    rows = random.normal(size=(steps, workers, 9, 40)).astype(np.float32)
    indices = random.integers(0, 60, size=(steps, workers, 9))
    biases = random.normal(size=(steps, workers, 7)).astype(np.float32)
    barrier = servers.Barrier(strategy, workers)

    @tf.function
    def push(step: tf.Tensor) -> tf.Tensor:
        barrier.meet()
        worker = servers.worker_index()

        def replica() -> None:
            gradients = [
                tf.gather(matrices, step)[worker],
                tf.IndexedSlices(
                    tf.gather(rows, step)[worker],
                    tf.gather(indices, step)[worker],
                    tf.constant(shapes[1], tf.int64),
                ),
                tf.gather(biases, step)[worker],
            ]
            gradients[0] = tf.reshape(gradients[0], shapes[0])
            pushed = tf_gc.push_gradients(zip(gradients, variables, strict=True))
            for value, total in zip(pushed, arrived, strict=True):
                with tf.device(total.device):
                    total.assign_add(tf.cast(tf.convert_to_tensor(value), tf.float64))

        strategy.run(replica)
        return (tf.cast(worker, tf.int64),)

    servers.run_on_all(coordinator, push, [tf.constant(i) for i in range(steps)], workers)
    table = np.zeros(shapes[1])
    np.add.at(table, indices.reshape(-1), rows.reshape(-1, 40).astype(np.float64))
    given = [matrices.sum((0, 1), np.float64), table, biases.sum((0, 1), np.float64)]
    state = strategy.compression_state
    return {
        "arrived": [total.numpy() for total in arrived],
        "left": [state.total(variable) for variable in variables],
        "given": given,
        "schedule": str(strategy.schedule),
    }


def mxnet(cases: list[tuple[Array, float]]) -> list[Array]:
    """Pushes the gradients of [steps, workers, ...] each by its worker; returns what came of each.

    The results have the same shapes.
    """
    workers = cases[0][0].shape[1]
    resolver = servers.in_this_process(workers, 1)
    results = []
    for gradients, threshold in cases:
        strategy = tf_gc.CompressedParameterServerStrategy(
            resolver, compression_params={"type": "2bit", "threshold": threshold}
        )
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            variable = tf.Variable(tf.zeros(gradients.shape[2:]))
        push = _pusher(strategy, gradients, variable, workers)
        steps = [tf.constant(i) for i in range(len(gradients))]
        came = servers.run_on_all(coordinator, push, steps, workers)
        results.append(np.array([[value for _, value in step] for step in came]))
    return results


def _pusher(strategy: Any, gradients: Array, variable: Any, workers: int) -> Any:
    barrier = servers.Barrier(strategy, workers)

    @tf.function
    def push(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        barrier.meet()
        worker = servers.worker_index()

        def replica() -> tf.Tensor:
            gradient = tf.reshape(tf.gather(gradients, step)[worker], variable.shape)
            (pushed,) = tf_gc.push_gradients([(gradient, variable)])
            return pushed

        return tf.cast(worker, tf.int64), strategy.run(replica)

    return push


def sgd(gradients: Array, threshold: float, rate: float) -> Array:
    """One worker trains a variable by Keras' SGD with these gradients, [steps, ...]."""
    resolver = servers.in_this_process(1, 1)
    strategy = tf_gc.CompressedParameterServerStrategy(
        resolver, compression_params=tf_gc.TwoBit(threshold)
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(gradients.shape[1:]))
        optimizer = keras.optimizers.SGD(rate)
        optimizer.build([variable])

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        strategy.run(lambda: optimizer.apply_gradients([(gradient, variable)]))

    for gradient in gradients:
        coordinator.schedule(step, args=(tf.constant(gradient),))
        coordinator.join()
    assert int(optimizer.iterations.numpy()) == len(gradients)
    weights: Array = variable.numpy()
    return weights


def train_alike(steps: int) -> list[list[bytes]]:
    """Trains the same model under the stock strategy and without compression, with one worker."""
    resolver = servers.in_this_process(1, 2)
    return [
        _train(make(resolver), steps)[1]
        for make in (
            tf.distribute.ParameterServerStrategy,
            lambda resolver: tf_gc.CompressedParameterServerStrategy(
                resolver, compression_params={"type": "none"}
            ),
        )
    ]


def _train(strategy: Any, steps: int, **arguments: Any) -> tuple[Any, list[bytes]]:
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                keras.layers.Embedding(500, 48),
                keras.layers.Flatten(),
                keras.layers.Dense(40, activation="relu"),
                keras.layers.Dense(5),
            ]
        )
        optimizer = keras.optimizers.Adam(0.01, **arguments)
        optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(words: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        def replica(words: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = loss_fn(labels, model(words, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.run(replica, args=(words, labels))

    words = np.random.default_rng(2).integers(0, 500, (16, 6)).astype(np.int32)
    labels = words[:, 0] % 5
    losses = [coordinator.schedule(step, args=(words, labels)) for _ in range(steps)]
    coordinator.join()
    values = [loss.fetch() for loss in losses]
    graph = step.get_concrete_function(words, labels).graph
    facts = {
        "losses": values,
        "iterations": int(optimizer.iterations.numpy()),
        "ops": [op.type for op in graph.get_operations()],
        "schedule": str(strategy.schedule) if hasattr(strategy, "schedule") else "",
    }
    return facts, servers.bits([*model.variables, *optimizer.variables])


def keras_models(workers: int, steps: int) -> list[dict[str, Any]]:
    """Trains a model with an embedding in several ways, and says how it went."""
    resolver = servers.in_this_process(workers, 2)
    table = tf_gc.Quantized(sparse=True)
    return [
        _train(
            tf_gc.CompressedParameterServerStrategy(resolver, compression_params=params, pull=pull),
            steps,
            **arguments,
        )[0]
        for params, pull, arguments in (
            (table, "full", {}),
            (table, "bfloat16", {}),
            (table, "delta", {"global_clipnorm": 1.0}),
            (tf_gc.ByVariable({"embeddings": table}, tf_gc.Cast("bfloat16")), "delta", {}),
        )
    ]


def pulls(pull: str, steps: int) -> dict[str, Any]:
    """A worker pulls a variable that changes between its steps, and then does not."""
    resolver = servers.in_this_process(1, 1)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, pull=pull)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    random = np.random.default_rng(3)
    with strategy.scope():
        variable = tf.Variable(random.normal(size=(50, 60)).astype(np.float32))

    @tf.function
    def read() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        def replica() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                once, again = tf.identity(variable), variable * 2.0
                loss = tf.reduce_sum(once * 3.0 + again)
            return once, again, tape.gradient(loss, variable)

        return strategy.run(replica)

    def step() -> Array:
        value = coordinator.schedule(read)
        coordinator.join()
        once, again, gradient = value.fetch()
        np.testing.assert_array_equal(again, once * 2)
        np.testing.assert_array_equal(gradient, np.full(once.shape, 5.0))
        pulled: Array = once
        return pulled

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
    graph = read.get_concrete_function().graph.as_graph_def()
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
    return results


def crossings(workers: int) -> dict[str, Any]:
    """What a step hands from device to device, by how variables are pulled."""
    resolver = servers.in_this_process(workers, 1)
    return {pull: _crossings(resolver, pull) for pull in ("full", "bfloat16", "delta")}


def _crossings(resolver: Any, pull: str) -> dict[str, Any]:
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, pull=pull)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        matrix = tf.Variable(tf.ones([60, 50]))
        optimizer = keras.optimizers.SGD(0.5)
        optimizer.build([matrix])

    @tf.function
    def step() -> tuple[tf.Tensor, tf.Tensor]:
        def replica() -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.matmul(matrix, matrix, transpose_b=True))
            optimizer.apply_gradients([(tape.gradient(loss, matrix), matrix)])
            before = tf.reduce_sum(loss)
            with tf.device(matrix.device):
                matrix.assign(tf.zeros(matrix.shape))
            return before, tf.reduce_sum(tf.abs(matrix))

        return strategy.run(replica)

    value = coordinator.schedule(step)
    coordinator.join()
    graph = step.get_concrete_function().graph
    devices = {inner.name: outer.device for outer, inner in graph.captures}

    def is_on_server(operation: tf.Operation) -> bool:
        # What uses a variable runs where the variable is.
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
        "after writing": float(value.fetch()[1]),
    }


def not_scheduled() -> str:
    """Runs a step on the coordinator; returns the error."""
    strategy, variable = _half_pushed(1, [])

    @tf.function
    def push() -> None:
        strategy.run(lambda: tf_gc.push_gradients([(tf.ones(variable.shape), variable)]))

    try:
        push()
    except RuntimeError as error:
        return str(error)
    return ""


def save(folder: str, workers: int) -> Array:
    """Pushes, and saves what was not sent in a checkpoint; returns what that is."""
    strategy, variable = _half_pushed(workers, [1.0, 3.0])
    tf.train.Checkpoint(compression=strategy.compression_state).save(f"{folder}/checkpoint")
    left: Array = strategy.compression_state.total(variable)
    return left


def restore(folder: str, workers: int) -> tuple[list[Array], Array]:
    """Restores that; returns the parts of the workers, and what came of pushing zeros with them."""
    strategy, variable = _half_pushed(workers, [])
    state = strategy.compression_state
    checkpoint = tf.train.Checkpoint(compression=state)
    checkpoint.restore(tf.train.latest_checkpoint(folder))
    pushed = _push_all(strategy, variable, [0.0], workers)
    state_parts = [part.numpy() for part in state.variables[0].values]
    return state_parts, pushed


def _half_pushed(workers: int, factors: list[float]) -> tuple[Any, Any]:
    resolver = servers.in_this_process(workers, 1)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver)
    with strategy.scope():
        variable = tf.Variable(tf.zeros([40, 60]), name="matrix")
    _push_all(strategy, variable, factors, workers)
    return strategy, variable


def _push_all(strategy: Any, variable: Any, factors: list[float], workers: int) -> Array:
    """Each worker pushes so many times some gradient; returns the sum of what came."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    some = np.random.default_rng(4).normal(size=(1, 1, 40, 60)).astype(np.float32)
    if not factors:
        return np.zeros(some.shape[2:])
    gradients = np.concatenate([some * factor for factor in factors])
    gradients = np.repeat(gradients, workers, axis=1)
    push = _pusher(strategy, gradients, variable, workers)
    steps = [tf.constant(i) for i in range(len(gradients))]
    came = servers.run_on_all(coordinator, push, steps, workers)
    total: Array = np.sum([value for step in came for _, value in step], axis=0)
    return total


def refusals() -> dict[str, str]:
    """What is refused, and in which words."""
    resolver = servers.in_this_process(1, 1)

    def make(**arguments: Any) -> Any:
        return tf_gc.CompressedParameterServerStrategy(resolver, **arguments)

    said: dict[str, str] = {}

    def ask(name: str, call: Any) -> None:
        try:
            call()
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
        else:
            said[name] = "nothing"

    ask("auto", lambda: make(compression_params={"type": "auto"}))
    ask("plan", lambda: make(compression_params=tf_gc.Quantized(plan="all_gather")))
    ask("layers", lambda: make(compression_params=tf_gc.Quantized(sum_layers=1)))
    rules = {"x": tf_gc.Quantized(2, plan="all_gather")}
    ask("rules", lambda: make(compression_params=tf_gc.ByVariable(rules)))
    ask("pull", lambda: make(pull="half"))
    ask("place", lambda: make(variable_partitioner={"type": "2bit"}))
    ask("server", lambda: tf_gc.run_server(resolver))
    strategy = make()
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
    for method in ("fit", "evaluate", "predict"):
        ask(method, lambda method=method: getattr(model, method)(np.zeros((8, 4))))
    ask("report", strategy.report)
    ask("push", lambda: tf_gc.push_gradients([]))
    sharding = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    with make(variable_partitioner=sharding).scope():
        ask("shards", lambda: keras.layers.Dense(8).build((None, 6)))
    return said
