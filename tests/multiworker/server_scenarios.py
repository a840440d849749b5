"""A coordinator that has workers push to parameter servers."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_gc
from tests.multiworker import servers

Array = np.ndarray[Any, Any]

WITHOUT_WARM_UP = tf_gc.Quantized(warm_up=False)


def ledger(many_params: list[Any], workers: int, steps: int) -> list[dict[str, Any]]:
    """Pushes gradients of a matrix, a table and a bias; and returns what came of them."""
    return [_ledger(params, workers, steps) for params in many_params]


def _ledger(params: Any, workers: int, steps: int) -> dict[str, Any]:
    log = _log_lines()
    strategy = tf_gc.CompressedParameterServerStrategy(
        servers.in_this_process(workers), compression_params=params
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

    @tf.function(autograph=False)
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
            gradients.append(gradients[0] * 0.5)  # a second one of the same variable
            pairs = zip(gradients, [*variables, variables[0]], strict=True)
            pushed = tf_gc.push_gradients(pairs)
            for value, total in zip(pushed, [*arrived, arrived[0]], strict=True):
                with tf.device(total.device):
                    total.assign_add(tf.cast(tf.convert_to_tensor(value), tf.float64))

        strategy.run(replica)
        return (tf.cast(worker, tf.int64),)

    servers.run_on_all(coordinator, push, [tf.constant(i) for i in range(steps)], workers)
    table = np.zeros(shapes[1])
    np.add.at(table, indices.reshape(-1), rows.reshape(-1, 40).astype(np.float64))
    given = [1.5 * matrices.sum((0, 1), np.float64), table, biases.sum((0, 1), np.float64)]
    state = strategy.compression_state
    return {
        "arrived": [total.numpy() for total in arrived],
        "left": [state.total(variable) for variable in variables],
        "given": given,
        "log": [*log],
        "schedule": str(strategy.schedule),
        "chief": strategy.is_chief,
        "written": strategy.write_path("checkpoints"),
    }


def mxnet(cases: list[tuple[Array, float]]) -> list[Array]:
    """Pushes the gradients of [steps, workers, ...] each by its worker; returns what came of each.

    The results have the same shapes.
    """
    workers = cases[0][0].shape[1]
    resolver = servers.in_this_process(workers)
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

    @tf.function(autograph=False)
    def push(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        barrier.meet()
        worker = servers.worker_index()

        def replica() -> tf.Tensor:
            gradient = tf.reshape(tf.gather(gradients, step)[worker], variable.shape)
            (pushed,) = tf_gc.push_gradients([(gradient, variable)])
            return pushed

        return tf.cast(worker, tf.int64), strategy.run(replica)

    return push


def warm_up(steps: int) -> list[float]:
    """A worker pushes the same gradient again and again; returns how far off each push is."""
    strategy = tf_gc.CompressedParameterServerStrategy(servers.in_this_process(1))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(tf.zeros([40, 60]))
    gradient = np.random.default_rng(4).normal(size=(40, 60)).astype(np.float32)

    @tf.function(autograph=False)
    def push() -> tf.Tensor:
        def replica() -> tf.Tensor:
            (pushed,) = tf_gc.push_gradients([(tf.constant(gradient), variable)])
            return pushed

        return strategy.run(replica)

    values = [coordinator.schedule(push) for _ in range(steps)]
    coordinator.join()
    assert strategy.compression_state.warm_up_steps < steps
    return [float(np.abs(value.fetch() - gradient).max()) for value in values]


def shards(steps: int) -> dict[str, Any]:
    """Trains a matrix in two shards, on two servers, to be another one."""
    resolver = servers.in_this_process(2)
    sharding = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, sharding, pull="delta")
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    target = np.random.default_rng(1).normal(size=(60, 80)).astype(np.float32)
    with strategy.scope():
        matrix = tf.Variable(tf.zeros(target.shape), name="matrix")

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.convert_to_tensor(matrix) - target) ** 2)
            gradients = tape.gradient(loss, matrix.variables)
            pushed = tf_gc.push_gradients(zip(gradients, matrix.variables, strict=True))
            for gradient, shard in zip(pushed, matrix.variables, strict=True):
                with tf.device(shard.device):
                    shard.assign_sub(300.0 * gradient)
            return loss

        return strategy.run(replica)

    losses = [coordinator.schedule(step) for _ in range(steps)]
    coordinator.join()
    return {
        "losses": [float(loss.fetch()) for loss in losses],
        "devices": [shard.device for shard in matrix.variables],
        "buckets": [bucket.variables for bucket in strategy.schedule.buckets],
    }


def _log_lines() -> list[str]:
    """Returns the list to which the lines of the log go from now on."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("absl")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return lines


def save(folder: str, workers: int) -> Array:
    """Pushes, saves what was not sent in a checkpoint, and pushes more; returns what was saved."""
    strategy, variable = _half_pushed(workers, [1.0, 3.0])
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state)
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    left: Array = strategy.compression_state.total(variable)
    checkpoint.save(f"{folder}/checkpoint", options=options)
    _push_all(strategy, variable, [2.0], workers)
    checkpoint.sync()
    return left


def restore(folder: str, workers: int) -> tuple[list[Array], Array, list[str]]:
    """Restores that; returns the workers' parts, what came of pushing zeros, and the log."""
    lines = _log_lines()
    strategy, variable = _half_pushed(workers, [])
    state = strategy.compression_state
    checkpoint = tf.train.Checkpoint(compression=state)
    checkpoint.restore(tf.train.latest_checkpoint(folder))
    pushed = _push_all(strategy, variable, [0.0], workers)
    state_parts = [part.numpy() for part in state.variables[0].values]
    return state_parts, pushed, [line for line in lines if "residuals" in line]


def _half_pushed(workers: int, factors: list[float]) -> tuple[Any, Any]:
    resolver = servers.in_this_process(workers)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, None, WITHOUT_WARM_UP)
    with strategy.scope():
        variable = tf.Variable(tf.zeros([40, 60]), name="matrix")
    _push_all(strategy, variable, factors, workers)
    return strategy, variable


def _push_all(strategy: Any, variable: Any, factors: list[float], workers: int) -> Array:
    """Each worker pushes some gradient, times each factor; returns the sum of what came."""
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
    """The words in which something is refused."""
    resolver = servers.in_this_process(1)

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
    ask("sums", lambda: make(compression_params=tf_gc.Quantized(sum_bits=3)))
    rules = {"x": tf_gc.Quantized(2, plan="all_gather")}
    ask("rules", lambda: make(compression_params=tf_gc.ByVariable(rules)))
    ask("pull", lambda: make(pull="half"))
    ask("place", lambda: make(variable_partitioner={"type": "2bit"}))
    ask("server", lambda: tf_gc.run_server(resolver))
    strategy = make()
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        variable = tf.Variable(tf.zeros([40, 60]))
    push = lambda: tf_gc.push_gradients([(tf.ones(variable.shape), variable)])  # noqa: E731
    ask("not scheduled", tf.function(lambda: strategy.run(push), autograph=False))
    for method in ("fit", "evaluate", "predict"):
        ask(method, lambda method=method: getattr(model, method)(np.zeros((8, 4))))
    ask("report", strategy.report)
    ask("push", lambda: tf_gc.push_gradients([]))
    sharding = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    with make(variable_partitioner=sharding).scope():
        ask("shards", lambda: keras.layers.Dense(8).build((None, 6)))
    return said
