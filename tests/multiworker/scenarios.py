"""What workers do in the tests of this folder."""

from __future__ import annotations

import collections
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc
from tf_gc.network import collectives
from tf_gc.state.stream import named_stream
from tf_gc.steps import trial, warm_up


def for_each(scenario: str, all_params: list[Any], *arguments: Any) -> list[Any]:
    """Runs a scenario of this module for each of several parameters, in one cluster."""
    return [globals()[scenario](params, *arguments) for params in all_params]


def gradient_sums(params: Any, steps: np.ndarray) -> list[np.ndarray]:
    """Returns the sums that this worker's first replica gets.

    `steps` is [steps, replicas, ...]: a gradient for each replica of the job.
    """
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    with strategy.scope():
        variable = tf.Variable(tf.zeros(steps.shape[2:]))

    @tf.function(autograph=False)
    def step(gradients: tf.Tensor) -> Any:
        def replica_step() -> tf.Tensor:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            (total,) = tf_gc.all_reduce_gradients([(gradients[replica], variable)])
            return total

        return strategy.run(replica_step)

    sums = []
    for gradients in steps:
        local = strategy.experimental_local_results(step(tf.constant(gradients)))
        for other in local[1:]:
            np.testing.assert_array_equal(other, local[0])
        sums.append(local[0].numpy())
    return sums


def ledger(params: Any) -> dict[str, Any]:
    """Reduces random gradients, and returns what was given, what was sent and what is left."""
    shapes = [(7, 100), (1,), (129,), (2000,)]
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=2000)
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(None, options, params)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]

    @tf.function(autograph=False)
    def step(gradients: list[tf.Tensor]) -> Any:
        def replica_step() -> list[tf.Tensor]:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = [gradient[replica] for gradient in gradients]
            return tf_gc.all_reduce_gradients(list(zip(mine, variables, strict=True)))

        return strategy.run(replica_step)

    random = np.random.default_rng(1)  # the same on all workers
    given = [np.zeros(shape) for shape in shapes]
    sent = [np.zeros(shape) for shape in shapes]
    sums: list[np.ndarray] = []
    for _ in range(15):
        gradients = [
            random.normal(scale=0.1, size=(strategy.num_replicas_in_sync, *shape)).astype("f")
            for shape in shapes
        ]
        totals = step([tf.constant(gradient) for gradient in gradients])
        local = [strategy.experimental_local_results(total) for total in totals]
        for values in local:
            for other in values[1:]:
                np.testing.assert_array_equal(other, values[0])
        sums = [values[0].numpy() for values in local]
        for i in range(len(shapes)):
            given[i] += gradients[i].sum(axis=0, dtype=np.float64)
            sent[i] += sums[i]
    left = {residual.shape: residual for residual in strategy.compression_state.variables}
    # Reading a residual sums it over all replicas: in one order on all workers.
    residuals = [left[shape].numpy() for shape in shapes]
    return {
        "plan": strategy.traffic.plan,
        "given": given,
        "sent": sent,
        "residuals": residuals,
        "last_sums": sums,
    }


def ledger_in_one_order(params: Any) -> tuple[dict[str, Any], list[int]]:
    """Does the same as if the devices were GPUs, whose collectives need one order for all groups.

    Returns as well how many groups each of this worker's devices is in, for each ordering token.
    """
    collectives.is_cpu = lambda device: False
    made: list[Any] = []
    initialize = collectives.CollectiveOps.__init__

    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        made.extend(self._launchers)

    collectives.CollectiveOps.__init__ = note
    result = ledger(params)
    groups = collections.Counter(
        (launcher._device, launcher._ordering_token.handle._id) for launcher in made
    )
    return result, [groups[key] for key in sorted(groups)]


def strategies_apart(late: list[int], params: Any) -> list[str]:
    """Makes several strategies, some workers each of them a second after the others."""
    task = tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id
    sums = []
    for _ in range(3):
        if task in late:
            time.sleep(1)
        strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
        with strategy.scope():
            variable = tf.Variable(tf.zeros(1000))
        run = tf.function(
            lambda strategy=strategy, variable=variable: strategy.run(
                lambda: tf_gc.all_reduce_gradients([(tf.ones(1000), variable)])
            ),
            autograph=False,
        )
        sums.append(f"{float(run()[0][0]):g}")
    return sums


def construct(of_workers: list[tuple[Any, int]]) -> str:
    """Makes a strategy with this worker's parameters and size of buckets; returns the error."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    params, bytes_per_pack = of_workers[resolver.task_id]
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
    try:
        tf_gc.CompressedMultiWorkerMirroredStrategy(None, options, params)
    except ValueError as error:
        return str(error)
    return ""


def options_are_honoured(addresses: list[str], folder: str) -> dict[str, Any]:
    """Uses a resolver and options that are not the defaults, and says what came of them.

    At the end a worker waits for the other in vain. In the folder they say how far they are.
    """
    task = tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": addresses}), task_type="worker", task_id=task
    )
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=8000,
        timeout_seconds=20.0,
        implementation=tf.distribute.experimental.CommunicationImplementation.RING,
    )
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
        resolver, options, {"type": "2bit", "threshold": 0.5}
    )
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(1000)) for _ in range(6)]

    @tf.function(autograph=False)
    def step() -> Any:
        pairs = [(tf.ones(1000), variable) for variable in variables]
        return strategy.run(lambda: tf_gc.all_reduce_gradients(pairs))

    operations = step.get_concrete_function().graph.get_operations()
    _meet(folder, "traced", task, 1 - task)  # the time-out is not for how long that takes
    gathers = [op for op in operations if op.type == "CollectiveGatherV2"]
    result = {
        "workers": strategy.num_replicas_in_sync,
        "is_given_resolver": strategy.cluster_resolver is resolver,
        "sum": [float(total[0]) for total in step()],
        "gathers": len(gathers),
        "implementations": {op.get_attr("communication_hint") for op in gathers},
        "timeouts": {op.get_attr("timeout_seconds") for op in gathers},
        "deadlines": [
            op.get_attr("seconds") for op in operations if op.type == "TfGc>BeginDeadline"
        ],
    }
    start = time.monotonic()
    if task == 0:  # the other worker does not come
        try:
            step()
        except tf.errors.OpError as error:
            result["error"] = type(error).__name__
        result["waited"] = time.monotonic() - start
    _meet(folder, "gave up", task, 0)
    return result


def _meet(folder: str, where: str, task: int, other: int) -> None:
    """Waits until the other worker is here, without any collective."""
    Path(folder, f"{task} {where}").touch()
    while not Path(folder, f"{other} {where}").exists():
        time.sleep(0.05)


def state_of_one_worker(worker: int) -> int:
    """One worker makes a residual and what belongs to it; the others do not. Returns how many."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    with strategy.scope():
        variable = tf.Variable(tf.ones([3, 5]))
    state = strategy.compression_state
    if strategy.cluster_resolver.task_id == worker:
        made = [*state.residuals_of(variable)]
        for slot in (warm_up.SLOT, trial.SLOT):
            made += state.of_first(slot, named_stream(""), [variable]).values
        for component in made:
            np.testing.assert_array_equal(component, tf.zeros_like(component))
    return len(state.variables)


def traces_of_eager_steps(steps: int) -> int:
    """Sums gradients eagerly; returns how often Python built a collective after the first step."""
    built = 0
    launch = collectives._Lane._launch

    def counting(*arguments: Any) -> Any:
        nonlocal built
        built += 1
        return launch(*arguments)

    collectives._Lane._launch = counting
    params = {"type": "2bit", "warm_up": False, "plan": "all_gather"}
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    with strategy.scope():
        variable = tf.Variable(tf.zeros([30, 100]))
    in_first = 0
    for step in range(steps):
        strategy.run(lambda: tf_gc.all_reduce_gradients([(tf.ones([30, 100]), variable)]))
        in_first = in_first if step else built
    assert in_first > 0
    return built - in_first


def two_streams(folder: str) -> dict[str, Any]:
    """Two losses of one variable, saved and restored by all workers; sums, and what is left.

    They are saved asynchronously, before the first step and after it, while another one is made.
    """
    asynchronously = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    results: dict[str, Any] = {}
    for name, values in (("saved", (0.1, 0.25)), ("restored", (0.0, 0.0))):
        strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
            compression_params={"type": "2bit", "threshold": 1.0}
        )
        with strategy.scope():
            trunk = tf.Variable(tf.zeros(5), name="trunk")
        checkpoint = tf.train.Checkpoint(state=strategy.compression_state)
        path = Path(folder, str(strategy.cluster_resolver.task_id), "checkpoint")
        if name == "restored":
            checkpoint.read(str(path)).expect_partial()

        def replica_step(trunk: tf.Variable = trunk, values: Any = values) -> None:
            for stream, value in zip(("actor", "critic"), values, strict=True):
                tf_gc.all_reduce_gradients([(tf.fill([5], value), trunk)], stream)

        step = tf.function(replica_step, autograph=False)
        if name == "saved":
            checkpoint.write(str(path), asynchronously)
        strategy.run(step)
        entries = strategy.compression_state.entries()
        results[name] = {str(e.key): e.value.numpy() for e in entries if e.slot == "residual"}
        if name == "saved":
            checkpoint.write(str(path), asynchronously)
            strategy.run(step)
            checkpoint.sync()
    return results
