"""Workers that sum gradients, and what came of it."""

import collections
import hashlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.conformance.promise import promises
from tests.multiworker.cluster import worker_index
from tests.strategies.helpers import reducer, variables_of
from tests.strategies.kinds import EXAMPLES, check_sums
from tf_gc import _compat
from tf_gc.network import collectives
from tf_gc.state.stream import named_stream
from tf_gc.steps import trial, warm_up

Array = np.ndarray[Any, Any]


def gradient_sums(params: Any, steps: Array) -> list[Array]:
    """Returns the sums of [steps, replicas, ...] gradients."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    run = reducer(strategy, variables_of(strategy, steps.shape[2:]))
    sums = []
    for gradients in steps:
        first, *others = run([gradients])
        np.testing.assert_equal(others, [first] * len(others))
        sums.append(first[0])
    return sums


def _of_all_replicas(strategy: tf.distribute.Strategy, value: Any) -> Array:
    """The value that all replicas of this worker have."""
    first, *others = strategy.experimental_local_results(value)
    for other in others:
        np.testing.assert_array_equal(other, first)
    array: Array = first.numpy()
    return array


def dense(random: np.random.Generator, shape: Sequence[int], replicas: int) -> tuple[Array, Array]:
    """Gradients of all replicas, and what is passed to a step: the same."""
    gradients = random.normal(size=(replicas, *shape)).astype("f")
    return gradients, gradients


def rows(
    random: np.random.Generator, shape: Sequence[int], replicas: int
) -> tuple[Array, tuple[Array, Array, Array]]:
    """Gradients of all replicas, some of them of no row; and their values, indices and starts."""
    counts = random.integers(0, 60, replicas) * (random.random(replicas) < 0.8)
    values = random.normal(size=(counts.sum(), *shape[1:])).astype("f")
    indices = (random.zipf(1.3, counts.sum()) % shape[0]).astype(np.int32)
    starts = np.cumsum([0, *counts]).astype(np.int32)
    whole = np.zeros((replicas, *shape))
    for gradient, (start, end) in zip(whole, itertools.pairwise(starts), strict=True):
        np.add.at(gradient, indices[start:end], values[start:end])
    return whole, (values, indices, starts)


def ledger(
    params: Any,
    shapes: Sequence[tuple[int, ...]],
    make: Callable[..., Any] = dense,
    eager: bool = False,
    bytes_per_pack: int = 0,
) -> dict[str, Any]:
    """Reduces random gradients, and returns what was given, what was sent and what is left."""
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(None, options, params)
    variables = variables_of(strategy, *shapes)

    def step(all_passed: Any) -> Any:
        def replica_step() -> list[Any]:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            gradients = []
            for passed in all_passed:
                if make is dense:
                    gradients.append(passed[replica])
                else:
                    values, indices, starts = passed
                    mine = slice(starts[replica], starts[replica + 1])
                    gradients.append(tf.IndexedSlices(values[mine], indices[mine]))
            sums = tf_gc.all_reduce_gradients(list(zip(gradients, variables, strict=True)))
            return sums if make is dense else [(each.values, each.indices) for each in sums]

        return strategy.run(replica_step)

    random = np.random.default_rng(1)  # the same on all workers
    run = step
    if not eager:
        passed = [make(random, shape, 1)[1] for shape in shapes]
        specs = tf.nest.map_structure(
            lambda each: tf.TensorSpec([None, *each.shape[1:]], each.dtype), passed
        )
        run = tf.function(step, [specs], autograph=False)
    given, sent = ([np.zeros(shape) for shape in shapes] for _ in range(2))
    digest = hashlib.sha256()
    for _ in range(12):
        made = [make(random, shape, strategy.num_replicas_in_sync) for shape in shapes]
        sums = run(tf.nest.map_structure(tf.constant, [passed for _, passed in made]))
        for i, (gradients, _) in enumerate(made):
            parts = [_of_all_replicas(strategy, part) for part in tf.nest.flatten(sums[i])]
            index = slice(None)
            if make is rows:
                index = parts[1]
                assert (np.diff(index) > 0).all()
                assert index.dtype == np.int32
            given[i] += gradients.sum(0, np.float64)
            sent[i][index] += parts[0]
            digest.update(b"".join(part.tobytes() for part in parts))
    # Reading residuals sums them over all replicas: in one order on all workers.
    left = [strategy.compression_state.total(variable) for variable in variables]
    kept = [strategy.compression_state.residuals_of(variable) for variable in variables]
    return {
        "keeps": [[bool(np.any(each)) for each in of_replicas] for of_replicas in kept],
        "given": given,
        "sent": sent,
        "left": [np.zeros(s) if v is None else v for s, v in zip(shapes, left, strict=True)],
        "digest": digest.hexdigest(),
        "bytes": strategy.traffic.sent_bytes,
        "plan": strategy.traffic.plan,
        "schedule": str(strategy.schedule),
    }


def each_kind() -> list[str]:
    """Sums by each kind of params; returns their names."""
    for params in EXAMPLES.values():
        check_sums(tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params))
    return [*EXAMPLES]


def keep_promises_in_a_session(kind: Any) -> list[str]:
    """Keeps the promises of graphs for a session; returns their names."""
    strategy = kind()
    kept = [each for each in promises(False, workers=True) if each.name.startswith("graphs.")]
    for each in kept:
        each.keep(strategy, Path())
    return [each.name for each in kept]


def ledger_in_one_order(*arguments: Any, **options: Any) -> dict[str, Any]:
    """Does the same as if the devices were GPUs, whose collectives need one order for all groups.

    Returns as well how many groups each of this worker's devices is in, for each ordering token.
    """
    made: list[Any] = []
    initialize = collectives.CollectiveOps.__init__

    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        made.extend(self._launchers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives, "is_cpu", lambda device: False)
        patch.setattr(collectives.CollectiveOps, "__init__", note)
        result = ledger(*arguments, **options)
    groups = collections.Counter(
        (launcher._device, launcher._ordering_token.handle._id) for launcher in made
    )
    return {**result, "groups": [groups[key] for key in sorted(groups)]}


def options_are_honoured() -> dict[str, Any]:
    """Uses a resolver and options that are not the defaults, and says what came of them."""
    spec = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="worker", task_id=worker_index()
    )
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(8000, 20.0, ring)
    other_task, other_cluster = (
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster, task_type="worker", task_id=task
        )
        for cluster, task in (
            (spec, worker_index() ^ 1),
            (tf.train.ClusterSpec({"worker": ["localhost:1"] * 3}), worker_index()),
        )
    )
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
        resolver, options, {"type": "2bit", "threshold": 0.5, "plan": "all_gather"}
    )
    variables = variables_of(strategy, *[(1000,)] * 6)

    @tf.function(autograph=False)
    def step() -> Any:
        pairs = [(tf.ones(1000), variable) for variable in variables]
        return strategy.run(lambda: tf_gc.all_reduce_gradients(pairs))

    operations = step.get_concrete_function().graph.get_operations()
    gathers = [op for op in operations if op.type == "CollectiveGatherV2"]
    return {
        "member of": [*map(_compat.is_member, (resolver, other_task, other_cluster))],
        "is_given_resolver": strategy.cluster_resolver is resolver,
        "gathers": len(gathers),
        "implementations": {op.get_attr("communication_hint") for op in gathers},
        "timeouts": {op.get_attr("timeout_seconds") for op in gathers},
        "deadlines": [o.get_attr("seconds") for o in operations if o.type == "TfGc>BeginDeadline"],
    }


def state_of_one_worker(worker: int) -> int:
    """One worker makes a residual and what belongs to it; the others do not. Returns how many."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy()
    with strategy.scope():
        variable = tf.Variable(tf.ones([3, 5]))
    state = strategy.compression_state
    if worker_index() == worker:
        made = [*state.residuals_of(variable)]
        for slot in (warm_up.SLOT, trial.SLOT):
            made += state.of_first(slot, named_stream(""), [variable]).values
        for component in made:
            np.testing.assert_array_equal(component, tf.zeros_like(component))
    return len(state.variables)


def traces_of_eager_steps(steps: int) -> list[int]:
    """Sums gradients eagerly; returns how often Python built a collective until each step ended."""
    built, counts = [], []
    launch = collectives._Launcher._all_gather

    def counting(*arguments: Any, **options: Any) -> Any:
        built.append(launch(*arguments, **options))
        return built[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives._Launcher, "_all_gather", counting)
        strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
            compression_params={"type": "2bit", "warm_up": False, "plan": "all_gather"}
        )
        (variable,) = variables_of(strategy, (30, 100))
        for _ in range(steps):
            strategy.run(lambda: tf_gc.all_reduce_gradients([(tf.ones([30, 100]), variable)]))
            counts.append(len(built))
    return counts
