"""tf_keras on several workers, and with parameter servers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_gc
from tests.cases import matrix
from tests.keras.stock import SAMPLES, batches, data, in_batches
from tests.keras.test_monitor import points
from tests.keras2.models import Recorder, State, averaged, bits, fit, interrupted
from tests.multiworker import cluster
from tests.parameter_server import servers

pytestmark = pytest.mark.multiworker

SMALL = {"type": "quantized", "bypass_size": 0, "warm_up": False}


def train(params: Any) -> dict[str, Any]:
    strategy = (
        tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
        if params
        else tf.distribute.MultiWorkerMirroredStrategy()
    )
    model, losses = fit(strategy, lambda: tf_keras.optimizers.Adam(0.01))
    return {
        "bits": bits(model),
        "losses": losses,
        "evaluated": model.evaluate(batches(SAMPLES), verbose=0),
        # Of an array the iterator of a stock strategy may crash.
        "predicted": model.predict(data()[0], batch_size=16, verbose=0) if params else None,
        "traffic": str(getattr(strategy, "traffic", "")),
    }


def interrupt(folder: str) -> State:
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=SMALL)
    return interrupted(strategy, folder, "epoch").ends[-1]


def resume(folder: str) -> tuple[State, int]:
    """Goes on where the job was killed; returns the state with which it does, and the epochs."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=SMALL)
    seen = Recorder()
    backup = tf_gc.keras.BackupAndRestore(folder)
    _, losses = fit(strategy, averaged, [backup, seen])
    return seen.begins[0], len(losses)


def fit_on_servers(folder: Path) -> list[dict[str, Any]]:
    """Trains by `fit` with parameter servers, with a new and a legacy optimizer."""
    resolver = servers.in_this_process(2)
    sharding = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    x = np.random.default_rng(1).random((512, 64)).astype(np.float32)
    y = x[:, :4].argmax(axis=1)

    outcomes = []
    for make in (tf_keras.optimizers.Adam, tf_keras.optimizers.legacy.Adam):
        strategy = tf_gc.CompressedParameterServerStrategy(resolver, sharding, pull="delta")
        with strategy.scope():
            dense = tf_keras.layers.Dense
            model = tf_keras.Sequential([dense(128, "relu", input_shape=(64,)), dense(4)])
            loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(make(0.005), loss)
        logs = folder / make.__module__
        monitor = tf_gc.keras.CompressionMonitor(logs)
        batches_of = lambda _: in_batches((x, y), 32).shuffle(16).repeat()  # noqa: E731
        creator = tf_keras.utils.experimental.DatasetCreator(batches_of)
        history = model.fit(creator, epochs=2, steps_per_epoch=40, verbose=0, callbacks=[monitor])
        outcomes.append(
            {
                "losses": history.history["loss"],
                "iterations": int(model.optimizer.iterations.numpy()),
                "variables": [v for bucket in strategy.schedule.buckets for v in bucket.variables],
                "owners": strategy.compression_state.residual_owners(),
                "points": points(logs),
                "sent": strategy.traffic.sent_bytes,
            }
        )
    return outcomes


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = str(tmp_path_factory.mktemp("backup"))
    calls = {
        "none": (train, {"type": "none"}),
        "compressed": (train, SMALL),
        "interrupted": (interrupt, folder),
    }
    return [{**result, "folder": folder} for result in cluster.values(cluster.each, calls)]


@matrix
def test_workers_train_as_under_the_stock_strategy(ours: list[dict[str, Any]]) -> None:
    stock, _ = cluster.values(train, None)
    for mine in (result["none"] for result in ours):
        assert mine["bits"] == stock["bits"]
        assert mine["losses"] == stock["losses"]
        assert mine["evaluated"] == stock["evaluated"]


def test_workers_train_compressed(ours: list[dict[str, Any]]) -> None:
    first, second = (result["compressed"] for result in ours)
    assert "6 tensors, 0 tensors bypassed" in first["traffic"]
    assert first["bits"] == second["bits"]
    assert first["losses"][-1] < first["losses"][0]
    np.testing.assert_allclose(first["predicted"], second["predicted"], rtol=1e-5, atol=1e-6)


@matrix
def test_a_backup_goes_on_with_what_was_not_sent(ours: list[dict[str, Any]]) -> None:
    before = ours[0]["interrupted"]
    (first, epochs), (second, _) = cluster.values(resume, ours[0]["folder"])
    assert first.weights == second.weights == before.weights
    assert epochs == 1  # the last of three
    for mine, theirs in zip(first.totals, before.totals, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
        assert np.abs(theirs).max() > 0


def test_fit_with_parameter_servers(tmp_path: Path) -> None:
    (outcomes,) = cluster.values(fit_on_servers, tmp_path, workers=1)
    for outcome in outcomes:
        assert outcome["losses"][-1] < outcome["losses"][0]
        assert outcome["iterations"] == 80
        assert len(outcome["variables"]) == 2  # shards of the first kernel; the second is small
        assert all(owner.endswith(" of Adam") for owner in outcome["owners"])
        # Steps are not measured; the end of an epoch shows the bytes.
        assert outcome["points"] == {"sent_bytes": {40: outcome["sent"], 80: outcome["sent"]}}
