"""Low rank in `fit`: a backup has the residuals and the factors."""

import contextlib
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tf_gc
from tests.bits import assert_same_bits
from tests.keras.compressed import components, compressed_strategy, total_residual
from tests.keras.stock import BATCH, compiled


def scored() -> keras.Model:
    hidden = keras.layers.Dense(192, activation="relu", name="hidden")
    layers = [keras.Input((128,)), hidden, keras.layers.Dense(4, name="scores")]
    return keras.Sequential(layers, name="scored")


def test_a_backup_goes_on_where_it_was(tmp_path: Path) -> None:
    """A step after the backup leaves the same, with and without a restart before it."""
    x = np.random.default_rng(0).normal(size=(6 * BATCH, 128)).astype("f")
    y = np.argmax(x[:, :4], 1)
    kept: list[list[np.ndarray]] = []

    def stop_in_third_epoch(batch: int, logs: Any = None) -> None:
        if model.optimizer.iterations.numpy() < 13:
            return
        variable = model.trainable_variables[0].value
        values = {e.slot: e.value for e in strategy.compression_state.entries(variable)}
        first, second = components(values["factors"])
        assert_same_bits(first, second)
        kept.append([first, total_residual(strategy, variable), *model.get_weights()])
        raise InterruptedError

    for _ in range(2):
        strategy = compressed_strategy(2, tf_gc.LowRank(2, warm_up=False))
        model = compiled(strategy, scored, lambda: keras.optimizers.Adam(0.003))
        backup = tf_gc.keras.BackupAndRestore(tmp_path)
        stop = keras.callbacks.LambdaCallback(on_train_batch_end=stop_in_third_epoch)
        with contextlib.suppress(InterruptedError):
            model.fit(x, y, BATCH, epochs=3, callbacks=[backup, stop], shuffle=False, verbose=0)
    for resumed, uninterrupted in zip(kept[1], kept[0], strict=True):
        np.testing.assert_allclose(resumed, uninterrupted, atol=1e-4)
        assert np.abs(resumed).max() > 1e-3
