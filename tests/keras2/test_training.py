"""Training with tf_keras (Keras 2) under the strategies of one host."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_gc
from tests import programs
from tests.cases import cases, matrix
from tests.keras.compressed import AUTO, NONE, compressed_strategy
from tests.keras.stock import stock_strategy
from tests.keras.test_monitor import points
from tests.keras2.models import Recorder, averaged, bits, fit, interrupted
from tf_gc.keras.strategy import KerasStrategy

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "averaged": averaged,
    "SGD": lambda: tf_keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, clipnorm=0.05),
    "legacy Adam": lambda: tf_keras.optimizers.legacy.Adam(0.01, clipvalue=0.02),
    "scaled": lambda: tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.Adam(0.01)),
}


def assert_compressed(strategy: tf_gc.CompressedMirroredStrategy, model: Any) -> None:
    assert strategy.traffic.bypassed_tensors == 0
    assert strategy.traffic.compressed_tensors == len(model.trainable_variables)
    # The residuals belong to the optimizer, and not to whoever trains these variables.
    names = [variable.name.split(":")[0] for variable in model.trainable_variables]
    of = type(getattr(model.optimizer, "inner_optimizer", model.optimizer)).__name__
    owners = strategy.compression_state.residual_owners()
    assert sorted(owners) == sorted(f"{name} of {of}" for name in names)


@cases("name", *OPTIMIZERS)
def test_without_compression_it_is_the_stock_strategy(name: str) -> None:
    ours, losses = fit(compressed_strategy(2, NONE), OPTIMIZERS[name])
    stock, of_stock = fit(stock_strategy(2), OPTIMIZERS[name])
    assert bits(ours) == bits(stock)
    assert losses == of_stock


@matrix
@pytest.mark.parametrize("name", ["SGD", "legacy Adam", "scaled"])
def test_gradients_are_compressed(name: str) -> None:
    strategy = compressed_strategy(2, AUTO)
    policy = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_float16" if name == "scaled" else policy)
    try:
        model, losses = fit(strategy, OPTIMIZERS[name])
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)
    assert_compressed(strategy, model)
    assert losses[-1] < losses[0]


@cases("save_freq, replicas", ("epoch", 4), (4, 2))
def test_a_backup_goes_on_with_what_was_not_sent(
    tmp_path: Path, save_freq: Any, replicas: int
) -> None:
    first = interrupted(compressed_strategy(2, AUTO), tmp_path / "backup", save_freq)
    seen = Recorder()
    backup = tf_gc.keras.BackupAndRestore(tmp_path / "backup", save_freq)
    monitor = tf_gc.keras.CompressionMonitor(tmp_path / "logs", every=1)
    strategy = compressed_strategy(replicas, AUTO)
    model, losses = fit(strategy, OPTIMIZERS["averaged"], [backup, monitor, seen])
    assert len(losses) == 1  # the last of three epochs
    assert seen.begins[0].weights == first.ends[-1].weights
    for mine, theirs in zip(seen.begins[0].totals, first.ends[-1].totals, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
        assert np.abs(theirs).max() > 0
    assert not (tmp_path / "backup" / "chief").exists()
    # The steps of the third epoch.
    assert points(tmp_path / "logs")["density"].keys() == {9, 10, 11, 12}
    assert_compressed(strategy, model)
    # The residuals were no weights, and are not among them now.
    assert len(model.weights) == len(seen.begins[0].weights)
    with pytest.raises(NotImplementedError, match="with tf_keras, BackupAndRestore stops no"):
        backup.request_stop()


@pytest.mark.parametrize("arguments", [{"double_checkpoint": True}, {"save_freq": False}])
def test_what_tf_keras_has_no_backups_of_is_refused(tmp_path: Path, arguments: Any) -> None:
    backup = tf_gc.keras.BackupAndRestore(tmp_path, **arguments)
    with pytest.raises(ValueError, match="with tf_keras, BackupAndRestore saves"):
        fit(compressed_strategy(2, AUTO), OPTIMIZERS["SGD"], [backup])


@matrix
def test_tf_keras_may_be_the_keras_of_tensorflow() -> None:
    output = programs.output_of(Path(__file__).with_name("legacy_program.py"), new=True)
    assert "2 tensors, 2 tensors bypassed" in output
    assert "of Adam" in output


@matrix
def test_a_forgotten_scope_is_said(caplog: pytest.LogCaptureFixture) -> None:
    KerasStrategy.unused.clear()  # those of other tests
    strategy = compressed_strategy()
    fit(tf.distribute.get_strategy(), OPTIMIZERS["SGD"])
    (said,) = [message for message in caplog.messages if "tf_gc" in message]
    assert "outside of strategy.scope()" in said
    assert strategy.traffic is None
