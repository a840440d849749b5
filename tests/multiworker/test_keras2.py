"""tf_keras on several workers, and with parameter servers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_gc
from tests.cases import matrix
from tests.keras.stock import data
from tests.keras2.models import Recorder, averaged, bits, fit, interrupted
from tests.multiworker import cluster, servers

pytestmark = pytest.mark.multiworker

SMALL = {"type": "quantized", "bypass_size": 0, "warm_up": False}


def train(params: Any) -> dict[str, Any]:
    """Trains on several workers; `None` is the stock strategy."""
    if params is None:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    model, losses = fit(strategy, lambda: tf_keras.optimizers.Adam(0.01))
    x, y = data()
    return {
        "bits": bits(model),
        "losses": losses,
        "evaluated": model.evaluate(x, y, batch_size=16, verbose=0),
        "predicted": model.predict(x, batch_size=16, verbose=0),
        "traffic": str(getattr(strategy, "traffic", "")),
    }


def interrupt(folder: str) -> dict[str, Any]:
    """Trains on several workers with backups until the job is killed."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=SMALL)
    return dataclasses.asdict(interrupted(strategy, folder, "epoch").ends[-1])


def resume(folder: str) -> dict[str, Any]:
    """Goes on where the job was killed; returns the state with which it does."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=SMALL)
    seen = Recorder()
    backup = tf_gc.keras.BackupAndRestore(folder)
    _, losses = fit(strategy, averaged, [backup, seen])
    return {**dataclasses.asdict(seen.begins[0]), "epochs": len(losses)}


def fit_on_servers(shards: int, pull: str) -> dict[str, Any]:
    """Trains by `fit` with parameter servers, and asks for a legacy optimizer."""
    resolver = servers.in_this_process(2)
    sharding = tf.distribute.experimental.partitioners.FixedShardsPartitioner(shards)
    strategy = tf_gc.CompressedParameterServerStrategy(resolver, sharding, pull=pull)
    x = np.random.default_rng(1).random((512, 64)).astype(np.float32)
    y = x[:, :4].argmax(axis=1)

    def batches(context: Any = None) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(512).repeat().batch(32)

    def train(optimizer: Any) -> Any:
        with strategy.scope():
            model = tf_keras.Sequential(
                [
                    tf_keras.layers.InputLayer((64,)),
                    tf_keras.layers.Dense(128, activation="relu"),
                    tf_keras.layers.Dense(4),
                ]
            )
            loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer(), loss)
        creator = tf_keras.utils.experimental.DatasetCreator(batches)
        return model, model.fit(creator, epochs=4, steps_per_epoch=40, verbose=0)

    model, history = train(lambda: tf_keras.optimizers.Adam(0.005))
    schedule = strategy.schedule
    with pytest.raises(NotImplementedError, match="legacy optimizers"):
        train(tf_keras.optimizers.legacy.Adam)
    return {
        "losses": history.history["loss"],
        "iterations": int(model.optimizer.iterations.numpy()),
        "variables": [path for bucket in schedule.buckets for path in bucket.variables],
        "owners": strategy.compression_state.residual_owners(),
    }


@matrix
def test_workers_train_as_under_the_stock_strategy() -> None:
    ours, same = cluster.values(train, {"type": "none"})
    stock, _ = cluster.values(train, None)
    assert ours["bits"] == same["bits"] == stock["bits"]
    assert ours["losses"] == stock["losses"]
    assert ours["evaluated"] == stock["evaluated"]


def test_workers_train_compressed() -> None:
    first, second = cluster.values(train, SMALL)
    assert "6 tensors, 0 tensors bypassed" in first["traffic"]
    assert first["bits"] == second["bits"]
    assert first["losses"][-1] < first["losses"][0]
    np.testing.assert_allclose(first["predicted"], second["predicted"], rtol=1e-5, atol=1e-6)


@matrix
def test_a_backup_goes_on_with_what_was_not_sent(tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    before, _ = cluster.values(interrupt, folder)
    first, second = cluster.values(resume, folder)
    assert first["weights"] == second["weights"] == before["weights"]
    assert first["epochs"] == 1  # the last of three
    for mine, theirs in zip(first["totals"], before["totals"], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
        assert np.abs(theirs).max() > 0


@matrix
@pytest.mark.parametrize(("shards", "pull"), [(1, "full"), (2, "delta")])
def test_fit_with_parameter_servers(shards: int, pull: str) -> None:
    (outcome,) = cluster.values(fit_on_servers, shards, pull, workers=1)
    assert outcome["losses"][-1] < outcome["losses"][0]
    assert outcome["iterations"] == 160
    assert len(outcome["variables"]) == shards  # of the first kernel; the second is small
    assert all(owner.endswith(" of Adam") for owner in outcome["owners"])
