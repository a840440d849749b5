"""A coordinator that has workers push to parameter servers, and train models of Keras."""

import functools
import logging
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.parameter_server import servers
from tests.state.checkpoints import values_in
from tests.strategies import kinds

Array = np.ndarray[Any, Any]

WITHOUT_WARM_UP = tf_gc.Quantized(warm_up=False)


def ledger(params: Any, workers: int, steps: int) -> dict[str, Any]:
    """Pushes gradients of a matrix, a table and a bias; and returns what came of them."""
    log = _log_lines()
    strategy = tf_gc.CompressedParameterServerStrategy(
        servers.in_this_process(workers), compression_params=params
    )
    shapes = [(50, 80), (60, 40), (7,)]
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape), name=f"v{i}") for i, shape in enumerate(shapes)]
        arrived = [tf.Variable(tf.zeros(shape, tf.float64)) for shape in shapes]
    random = np.random.default_rng(1)
    matrices = random.normal(size=(steps, workers, *shapes[0])).astype(np.float32)
    rows = random.normal(size=(steps, workers, 9, 40)).astype(np.float32)
    indices = random.integers(0, 60, size=(steps, workers, 9))
    biases = random.normal(size=(steps, workers, 7)).astype(np.float32)

    def push(step: tf.Tensor, worker: tf.Tensor) -> tf.Tensor:
        matrix = tf.reshape(tf.gather(matrices, step)[worker], shapes[0])
        row_values, row_indices = tf.gather(rows, step)[worker], tf.gather(indices, step)[worker]
        gradients = [
            matrix,
            tf.IndexedSlices(row_values, row_indices, tf.constant(shapes[1], tf.int64)),
            tf.gather(biases, step)[worker],
            matrix * 0.5,  # a second one of the same variable
        ]
        pushed = tf_gc.push_gradients(zip(gradients, [*variables, variables[0]], strict=True))
        for value, total in zip(pushed, [*arrived, arrived[0]], strict=True):
            with tf.device(total.device):
                total.assign_add(tf.cast(tf.convert_to_tensor(value), tf.float64))
        return step

    servers.run_on_all(strategy, workers, push, steps)
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
        "warm-up": state.warm_up_steps,
        "chief": strategy.is_chief,
        "written": strategy.write_path("checkpoints"),
    }


def mxnet(gradients: Array, threshold: float) -> Array:
    strategy = tf_gc.CompressedParameterServerStrategy(
        servers.in_this_process(gradients.shape[1]),
        compression_params={"type": "2bit", "threshold": threshold},
    )
    with strategy.scope():
        variable = tf.Variable(tf.zeros(gradients.shape[2:]))
    return _push_all(strategy, variable, gradients)


def _push_all(strategy: Any, variable: Any, gradients: Array) -> Array:
    """Pushes the gradients of [steps, workers, ...] each by its worker; returns what came."""

    def push(step: tf.Tensor, worker: tf.Tensor) -> tf.Tensor:
        gradient = tf.reshape(tf.gather(gradients, step)[worker], variable.shape)
        (pushed,) = tf_gc.push_gradients([(gradient, variable)])
        return pushed

    steps, workers = gradients.shape[:2]
    return np.array(servers.run_on_all(strategy, workers, push, steps))


def warm_up(steps: int) -> list[float]:
    """A worker pushes the same gradient again and again; returns how far off each push is."""
    strategy = tf_gc.CompressedParameterServerStrategy(servers.in_this_process(1))
    with strategy.scope():
        variable = tf.Variable(tf.zeros([40, 60]))
    gradient = np.random.default_rng(4).normal(size=(40, 60)).astype(np.float32)
    pairs = [(tf.constant(gradient), variable)]
    values = servers.Steps(strategy, lambda: tf_gc.push_gradients(pairs)).run(steps)
    assert strategy.compression_state.warm_up_steps < steps
    return [float(np.abs(value - gradient).max()) for (value,) in values]


def streams() -> dict[str, Any]:
    """Pushes gradients of two streams in a step; returns what is said of it."""
    strategy = tf_gc.CompressedParameterServerStrategy(
        servers.in_this_process(1), None, WITHOUT_WARM_UP
    )
    with strategy.scope():
        a, b = (tf.Variable(tf.zeros([n, 60]), name=f"v{n}") for n in (40, 50))

    def step() -> list[tf.Tensor]:
        return [tf_gc.push_gradients([(tf.ones_like(v), v)], v.name)[0] for v in (a, b)]

    servers.Steps(strategy, step).run(2)
    buckets = strategy.schedule.buckets
    return {"variables": [b.variables for b in buckets], "pushed": strategy.traffic.pushed}


def shards(steps: int) -> dict[str, Any]:
    resolver = servers.in_this_process(2)
    sharding = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, sharding, pull="delta")
    matrix = servers.Matrix(strategy)
    return {
        "losses": [float(loss) for loss in matrix.steps.run(steps)],
        "devices": [shard.device for shard in matrix.shards],
        "buckets": [bucket.variables for bucket in strategy.schedule.buckets],
    }


def placement(partitioner: Any) -> list[list[tuple[int, int]]]:
    """Makes variables; returns for each shard of each its server and its bytes."""
    resolver = servers.in_this_process(1)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, partitioner)
    placed = []
    with strategy.scope():
        for rows in (3, 900, 400, 401, 7, 400, 1000):
            variable = tf.Variable(tf.zeros([rows, 16]))
            shards = getattr(variable, "variables", [variable])
            tasks = [tf.DeviceSpec.from_string(shard.device).task for shard in shards]
            placed.append(
                [(t, s.shape.num_elements() * 4) for t, s in zip(tasks, shards, strict=True)]
            )
    return placed


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
    strategy, variable = _with_a_variable(workers)
    _push_some(strategy, variable, workers, 1.0, 3.0)
    # The variable is on a server, so that TensorFlow writes in parts.
    checkpoint = tf.train.Checkpoint(compression=strategy.compression_state, matrix=variable)
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    left: Array = strategy.compression_state.total(variable)
    checkpoint.save(f"{folder}/checkpoint", options=options)
    _push_some(strategy, variable, workers, 2.0)
    checkpoint.sync()
    return left


def restore(folder: str, workers: int) -> tuple[list[Array], Array, list[str], list[Array]]:
    """Restores that, before there is anything and again; a function saves what there is then.

    Returns the workers' parts, what came of pushing zeros, the log, and what there was and is saved
    in the end.
    """
    lines = _log_lines()
    strategy, variable = _with_a_variable(workers)
    state = strategy.compression_state
    checkpoint = tf.train.Checkpoint(compression=state, matrix=variable)
    checkpoint.restore(tf.train.latest_checkpoint(folder)).assert_consumed()
    pushed = _push_some(strategy, variable, workers, 0.0)
    state_parts = [part.numpy() for part in state.variables[0].values]
    log = [line for line in lines if "residuals" in line]
    write = tf.function(lambda path: checkpoint.write(path))
    write(f"{folder}/again")
    checkpoint.restore(tf.train.latest_checkpoint(folder))
    (saved,) = values_in(write(f"{folder}/again").numpy()).values()
    return state_parts, pushed, log, [state.total(variable), saved]


def _with_a_variable(workers: int) -> tuple[Any, Any]:
    resolver = servers.in_this_process(workers)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, None, WITHOUT_WARM_UP)
    tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        return strategy, tf.Variable(tf.zeros([40, 60]), name="matrix")


def _push_some(strategy: Any, variable: Any, workers: int, *factors: float) -> Array:
    """Each worker pushes some gradient, times each factor; returns the sum of what came."""
    some = np.random.default_rng(4).normal(size=variable.shape).astype(np.float32)
    gradients = np.stack([[some * factor] * workers for factor in factors])
    return _push_all(strategy, variable, gradients).sum((0, 1))


def each_kind() -> dict[str, Any]:
    """Pushes by each kind of params with each pull; returns what was lost, or the refusal."""
    outcomes: dict[str, Any] = {}
    for name, params in kinds.EXAMPLES.items():
        for pull in ("full", "bfloat16", "delta"):
            try:
                lost = _lost(params, pull)
            except ValueError as error:
                outcomes[name] = str(error)
                break
            outcomes[f"{name}, {pull}"] = lost
    return outcomes


def _lost(params: Any, pull: str) -> float:
    strategy = tf_gc.CompressedParameterServerStrategy(
        servers.in_this_process(1), None, params, pull=pull
    )
    with strategy.scope():
        matrix = tf.Variable(tf.zeros(kinds.SHAPE), name="matrix")
    gradient = np.random.default_rng(4).normal(size=kinds.SHAPE).astype(np.float32)

    def replica() -> None:
        pulled = tf.convert_to_tensor(matrix)
        (pushed,) = tf_gc.push_gradients([(gradient + 0.0 * pulled, matrix)])
        with tf.device(matrix.device):
            matrix.assign_add(pushed)

    servers.Steps(strategy, replica).run(3)
    assert bool(strategy.schedule) == (params["type"] != "none")
    left = strategy.compression_state.total(matrix)
    arrived = matrix.numpy() if left is None else matrix.numpy() + left
    return float(np.abs(arrived - 3.0 * gradient).max())


def train_alike(steps: int) -> list[list[bytes]]:
    resolver = servers.in_this_process(1)
    stock = tf.distribute.ParameterServerStrategy(resolver)
    ours = tf_gc.CompressedParameterServerStrategy(resolver, None, {"type": "none"})
    with ours.scope():
        matrix = tf.Variable(tf.ones([60, 50]))

    def write_in_loop() -> None:  # which no variable can that is pulled
        for _ in tf.range(3):
            matrix.assign(matrix + 1)

    tf.function(functools.partial(ours.run, write_in_loop)).get_concrete_function()
    return [_train(strategy, steps, scaled=True)[1] for strategy in (stock, ours)]


def _train(
    strategy: Any, steps: int, scaled: bool = False, **arguments: Any
) -> tuple[Any, list[bytes]]:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Embedding(500, 48), keras.layers.Flatten()]
        layers += [keras.layers.Dense(40, activation="relu"), keras.layers.Dense(5)]
        model = keras.Sequential([keras.Input((6,), dtype="int32"), *layers])
        optimizer = keras.optimizers.Adam(0.01, **arguments)
        if scaled:  # its step runs the replica once more inside of the first run
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=64.0)
        optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def replica(words: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, model(words, training=True))
            scaled_loss = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    words = np.random.default_rng(2).integers(0, 500, (16, 6)).astype(np.int32)
    training = servers.Steps(strategy, replica)
    values = training.run(steps, words, words[:, 0] % 5)
    graph = training.function.get_concrete_function(words, words[:, 0] % 5).graph
    facts = {
        "losses": values,
        "iterations": int(optimizer.iterations.numpy()),
        "ops": [op.type for op in graph.get_operations()],
        "schedule": str(strategy.schedule) if hasattr(strategy, "schedule") else "",
        "servers": [kernel.value.device for kernel in model.variables if len(kernel.shape) > 1],
    }
    return facts, [v.numpy().tobytes() for v in [*model.variables, *optimizer.variables]]


def keras_models(workers: int, steps: int) -> list[dict[str, Any]]:
    resolver = servers.in_this_process(workers)
    table = tf_gc.Quantized(sparse=True)
    mixed = tf_gc.ByVariable({"embeddings": table}, tf_gc.Cast("bfloat16"))
    outcomes = []
    for params, pull, arguments in (
        (table, "full", {}),
        (table, "bfloat16", {}),
        (table, "delta", {"global_clipnorm": 1.0}),
        (mixed, "delta", {"scaled": True}),
    ):
        strategy = tf_gc.CompressedParameterServerStrategy(resolver, None, params, pull=pull)
        outcomes.append(_train(strategy, steps, **arguments)[0])
    return outcomes


def refusals() -> None:
    resolver = servers.in_this_process(1)
    make = functools.partial(tf_gc.CompressedParameterServerStrategy, resolver)
    sharding = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    planned = tf_gc.Quantized(plan="all_gather")
    in_a_rule = tf_gc.ByVariable({"x": planned})
    sums = tf_gc.Quantized(sum_bits=3)
    in_a_default = tf_gc.ByVariable({"x": tf_gc.ByVariable({}, sums)})
    strategy = make()
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        variable = tf.Variable(tf.zeros([40, 60]))

    def push() -> Any:
        return strategy.run(lambda: tf_gc.push_gradients([(tf.ones(variable.shape), variable)]))

    np.testing.assert_array_equal(push()[0], np.ones(variable.shape))  # eagerly, nothing is pushed

    def shard() -> None:
        with make(sharding).scope():
            keras.layers.Dense(8).build((None, 6))

    refused = [
        (ValueError, "must not be tf_gc.Auto", lambda: make(None, {"type": "auto"})),
        (ValueError, "plan='all_gather' says how replicas sum", lambda: make(None, planned)),
        (ValueError, "plan='all_gather' says how replicas", lambda: make(None, in_a_rule)),
        (ValueError, "sum_bits=3 is for sums", lambda: make(None, sums)),
        (ValueError, "sum_bits=3 is for sums", lambda: make(None, in_a_default)),
        (ValueError, "one of .'full', 'bfloat16', 'delta'., got 'half'", lambda: make(pull="half")),
        (TypeError, "variable_partitioner got {'type': '2bit'}", lambda: make({"type": "2bit"})),
        (ValueError, "run_server runs a task of the jobs", lambda: tf_gc.run_server(resolver)),
        (RuntimeError, "run it with ClusterCoordinator.schedule", tf.function(push)),
        (NotImplementedError, "tf_gc measures no steps", strategy.report),
        (RuntimeError, "tf_gc.push_gradients is for functions", lambda: tf_gc.push_gradients([])),
        (NotImplementedError, "no layers with variables in shards", shard),
    ]
    for method in ("fit", "evaluate", "predict"):
        call = functools.partial(getattr(model, method), np.zeros((8, 4)))
        refused.append((NotImplementedError, f"Keras 3 cannot {method}.. under parameter", call))
    for error, words, call in refused:
        with pytest.raises(error, match=words):
            call()
