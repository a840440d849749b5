"""Sums of gradients over real worker processes: two with two replicas each, three with one."""

import collections
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.conformance.promise import kept_by_workers
from tests.multiworker import cluster
from tests.multiworker.cluster import worker_index
from tests.reducers import test_rows
from tests.strategies.helpers import check_that_nothing_is_lost, normal, reducer, variables_of
from tests.strategies.kinds import EXAMPLES, check_sums
from tf_gc import _compat
from tf_gc.network import collectives
from tf_gc.state.stream import named_stream
from tf_gc.steps import trial, warm_up

pytestmark = pytest.mark.multiworker

Array = np.ndarray[Any, Any]
Results = list[dict[str, Any]]

GOLDEN = Path(__file__).parents[1] / "golden" / "mxnet_1_9_1_two_bit.npz"
OURS = tf_gc.CompressedMultiWorkerMirroredStrategy
AT_ONCE = {"warm_up": False, "bypass_size": 0}
CODES = {"type": "quantized", **AT_ONCE}
FIXED = {"type": "2bit", "threshold": 0.1}
ROWS = {"type": "quantized", "sparse": True}
LOW_RANK = {"type": "low_rank", "rank": 2, "warm_up": False}

SHAPES = [(7, 100), (1,), (129,), (2000,)]
MATRICES = [(128, 192), (3, 3, 32, 160), (400, 140), (7,)]
# Gradients of 25 steps, of which two are larger. Two replicas each add what is opposite: those of
# the first worker more and more, those of the second less and less.
STEPS = np.arange(25).reshape(25, 1, 1, 1)
SCALES = np.where(STEPS < 3, STEPS + 1, 1)
OPPOSITE = np.where(np.arange(4)[:, None, None] < 2, STEPS, 25 - STEPS)
OPPOSITE = OPPOSITE * np.array([1, -1, 1, -1])[:, None, None]
WARM_UP = np.random.default_rng(1).normal(size=(1, 4, 50, 50)) * SCALES + OPPOSITE
WARM_UP = WARM_UP.astype("f")


def gradient_sums(params: Any, steps: Array) -> list[Array]:
    """Returns the sums of [steps, replicas, ...] gradients."""
    strategy = OURS(compression_params=params)
    run = reducer(strategy, variables_of(strategy, steps.shape[2:]))
    sums = []
    for gradients in steps:
        first, *others = run([gradients])
        np.testing.assert_equal(others, [first] * len(others))
        sums.append(first[0])
    return sums


def _digest(tensors: Iterable[Any]) -> str:
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in tensors)).hexdigest()


def ledger(
    params: Any,
    shapes: Sequence[tuple[int, ...]],
    eager: bool = False,
    bytes_per_pack: int = 0,
    atol: float = 3e-5,
) -> dict[str, Any]:
    """Sums random gradients, of which nothing is lost; returns what they became, and how."""
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
    strategy = OURS(None, options, params)
    variables = variables_of(strategy, *shapes)
    steps = [normal(shapes, seed, strategy.num_replicas_in_sync) for seed in range(12)]
    run = reducer(strategy, variables, eager)
    sums = check_that_nothing_is_lost(strategy, variables, run, steps, rtol=1e-5, atol=atol)
    kept = [strategy.compression_state.residuals_of(variable) for variable in variables]
    return {
        "keeps": [[bool(np.any(each)) for each in of_replicas] for of_replicas in kept],
        "digest": _digest(total for first, *_ in sums for total in first),
        "bytes": strategy.traffic.sent_bytes,
        "plan": strategy.traffic.plan,
    }


def rows_ledger(params: Any, eager: bool = False) -> dict[str, Any]:
    """Does the same with rows; some replicas have none."""
    strategy = OURS(compression_params=params)
    _, table, step = test_rows.made(strategy, eager=eager)
    random = np.random.default_rng(1)
    given, sent, tensors = np.zeros(test_rows.SHAPE), np.zeros(test_rows.SHAPE), []
    for number in range(12):
        replicas = strategy.num_replicas_in_sync
        counts = random.integers(0, 60, replicas) * (random.random(replicas) < 0.8)
        rows = test_rows.rows_of(number, counts)
        first, *others = step(rows)
        assert first.indices.dtype == tf.int32
        assert (np.diff(first.indices) > 0).all()
        for other in others:
            np.testing.assert_array_equal(other.values, first.values)
            np.testing.assert_array_equal(other.indices, first.indices)
        given += test_rows.dense(rows)
        sent += test_rows.as_dense(first)
        tensors += [first.values, first.indices]
    left = strategy.compression_state.total(table)
    np.testing.assert_allclose(sent if left is None else sent + left, given, rtol=1e-5, atol=3e-5)
    return {"digest": _digest(tensors), "schedule": str(strategy.schedule)}


def each_kind() -> list[str]:
    """Sums by each kind of params; returns their names."""
    for params in EXAMPLES.values():
        check_sums(OURS(compression_params=params))
    return [*EXAMPLES]


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
    strategy = OURS(resolver, options, {"type": "2bit", "threshold": 0.5, "plan": "all_gather"})
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
    strategy = OURS()
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
        strategy = OURS(compression_params={"type": "2bit", "warm_up": False, "plan": "all_gather"})
        (variable,) = variables_of(strategy, (30, 100))
        for _ in range(steps):
            strategy.run(lambda: tf_gc.all_reduce_gradients([(tf.ones([30, 100]), variable)]))
            counts.append(len(built))
    return counts


def rows_of_unequal_batches() -> list[float]:
    """Sums rows in full precision, in functions that know their number; the sum of each step."""
    strategy = OURS()
    with strategy.scope():
        table = tf.Variable(tf.zeros([10, 3]))

    @tf.function
    def step(rows: tf.Tensor) -> Any:
        def replica() -> Any:
            gradient = tf.IndexedSlices(rows, tf.range(rows.shape[0]), tf.constant([10, 3]))
            return tf_gc.all_reduce_gradients([(gradient, table)])[0]

        return strategy.run(replica)

    # More than there are keys of a kind, before the workers' last batches differ.
    counts = [8] * 20 + [8 - 3 * worker_index()] + [8] * 3
    totals = (strategy.experimental_local_results(step(tf.ones([n, 3])))[0] for n in counts)
    return [float(tf.reduce_sum(total.values)) for total in totals]


def codes(params: dict[str, Any], plan: str = "auto") -> tuple[Any, ...]:
    return {**params, "plan": plan}, SHAPES, False, 2000


@pytest.fixture(scope="module")
def two_by_two() -> Results:
    with np.load(GOLDEN) as golden:
        gradients = golden["ramp_4x4__grads"]
    half = {"type": "2bit", "threshold": 0.5}
    calls = {
        "each kind": (each_kind,),
        "in a session": (kept_by_workers, OURS, "graphs."),
        "eager": (traces_of_eager_steps, 3),
        "mxnet, gathered": (gradient_sums, {**half, "plan": "all_gather"}, gradients),
        "mxnet, scattered": (gradient_sums, {**half, "plan": "scatter_gather"}, gradients),
        "dense": (gradient_sums, {"type": "none"}, WARM_UP),
        "warm-up": (gradient_sums, {"type": "quantized"}, WARM_UP),
        "codes, hierarchical": (ledger_in_one_order, *codes(CODES)),
        "codes, scatter_gather": (ledger, *codes(FIXED, "scatter_gather")),
        "rows": (rows_ledger, {**ROWS, "warm_up": False}),
        "low rank": (ledger, LOW_RANK, MATRICES, False, 0, 1e-4),
        "state of one": (state_of_one_worker, 1),
        "unequal": (rows_of_unequal_batches,),
    }
    return cluster.values(cluster.each, calls, devices=2)


@pytest.fixture(scope="module")
def three() -> Results:
    calls = {
        "codes, scatter_gather": (ledger, *codes(CODES)),
        "codes, all_gather": (ledger, *codes(FIXED)),
        "codes, hierarchical": (ledger, *codes(FIXED, "hierarchical")),
        "rows": (rows_ledger, ROWS),
        "rows, eager": (rows_ledger, {**ROWS, "warm_up": False}, True),
        "low rank": (ledger, LOW_RANK, MATRICES, True, 0, 1e-4),
        "options": (options_are_honoured,),
    }
    return cluster.values(cluster.each, calls, workers=3)


@pytest.fixture(params=["two_by_two", "three"])
def results(request: pytest.FixtureRequest) -> Results:
    return request.getfixturevalue(request.param)


def ledgers_of(results: Results, kind: str) -> dict[str, list[dict[str, Any]]]:
    """The ledgers of all workers, by name; all workers got the same bits."""
    ledgers = {name: [of[name] for of in results] for name in results[0] if name.startswith(kind)}
    assert ledgers
    for of_workers in ledgers.values():
        assert {each["digest"] for each in of_workers} == {of_workers[0]["digest"]}
    return ledgers


def test_all_workers_get_the_sums_of_mxnet(two_by_two: Results) -> None:
    with np.load(GOLDEN) as golden:
        expected = golden["ramp_4x4__sums"]
    for result in two_by_two:
        np.testing.assert_array_equal(result["mxnet, gathered"], expected)
        np.testing.assert_array_equal(result["mxnet, scattered"], expected)


def test_what_is_sent_and_what_is_kept_is_what_was_given(results: Results) -> None:
    for name, (one, *_) in ledgers_of(results, "codes").items():
        assert one["plan"] == name.removeprefix("codes, ")


def test_rows_are_summed_by_rows_and_the_rest_is_kept(results: Results) -> None:
    for one, *_ in ledgers_of(results, "rows").values():
        assert "a scale for each row), all_gather, rows" in one["schedule"]


def test_factors_send_what_was_given_or_keep_it(results: Results) -> None:
    replicas = 4 if len(results) == 2 else 3
    (one, *_) = ledgers_of(results, "low rank")["low rank"]
    size = 4 * 2 * (128 + 192 + 288 + 160 + 400 + 140)
    vector = 2 * (replicas - 1) * 7 * 4 // replicas
    assert one["bytes"] == 2 * (replicas - 1) * size // replicas + vector


def test_each_kind_sums_on_workers(two_by_two: Results) -> None:
    assert all(result["each kind"] == [*EXAMPLES] for result in two_by_two)


def test_workers_reduce_in_a_session(two_by_two: Results) -> None:
    assert [len(result["in a session"]) for result in two_by_two] == [6, 6]


def test_groups_that_share_a_gpu_run_in_one_order(two_by_two: Results) -> None:
    for result in two_by_two:
        # All replicas, the peers of this one and, for the first device, the hosts.
        assert result["codes, hierarchical"]["groups"] == [3, 2]


def test_the_devices_of_a_host_take_turns_to_send_for_it(two_by_two: Results) -> None:
    for result in two_by_two:
        # The one that sends a bucket keeps what is left of it.
        keeps = result["codes, hierarchical"]["keeps"]
        assert sorted(map(tuple, keeps)) == [(False, True)] * 2 + [(True, False)] * 2


def test_workers_end_a_warm_up_in_the_same_step(two_by_two: Results) -> None:
    for result in two_by_two:
        warm = result["warm-up"]
        same = [np.array_equal(a, b) for a, b in zip(result["dense"], warm, strict=True)]
        assert 10 < sum(same) < 20
        assert all(same[: sum(same)])
        np.testing.assert_array_equal(warm, two_by_two[0]["warm-up"])


def test_a_worker_makes_residuals_without_the_others(two_by_two: Results) -> None:
    # They are zeros everywhere. To broadcast them would send as much as the model itself.
    assert [result["state of one"] for result in two_by_two] == [0, 3]


def test_workers_may_have_unequal_numbers_of_rows(two_by_two: Results) -> None:
    # Two devices a worker, of three columns.
    expected = [4 * 8 * 3.0] * 20 + [2 * (8 + 5) * 3.0] + [4 * 8 * 3.0] * 3
    assert [result["unequal"] for result in two_by_two] == [expected] * 2


def test_eager_steps_build_their_collectives_once(two_by_two: Results) -> None:
    for result in two_by_two:
        first, *others = result["eager"]
        assert first > 0
        assert set(others) == {first}


def test_resolver_and_communication_options_are_honoured(three: Results) -> None:
    for result in (each["options"] for each in three):
        assert result["is_given_resolver"]
        assert result["member of"] == [True, False, False]
        assert result["gathers"] == 3  # two tensors fill a bucket of 8,000 bytes
        assert result["implementations"] == {b"ring"}
        assert result["timeouts"] == {0.0}  # TensorFlow's own, which may crash
        assert result["deadlines"] == [20.0] * 3
