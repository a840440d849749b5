"""A compressed strategy in the process changes nothing for those that are not."""

from pathlib import Path

import keras
import numpy as np
import pytest

import tf_gc
from tests.bits import assert_same_bits
from tests.fork_server import FORK_SERVER
from tests.keras import train_without_tf_gc
from tests.keras.compressed import compressed_strategy
from tests.keras.stock import fit


def test_other_training_is_that_of_a_process_without_tf_gc(tmp_path: Path) -> None:
    path = tmp_path / "expected.npz"
    FORK_SERVER.output("tests.keras.train_without_tf_gc:main", str(path))
    strategy = compressed_strategy()
    own = fit(strategy, epochs=1).model
    results = train_without_tf_gc.results()
    with np.load(path) as expected:
        assert sorted(expected) == sorted(results)
        assert len(results) == 10
        for name, value in results.items():
            assert_same_bits(value, expected[name])
    # Only the strategy's own model has residuals.
    assert len(strategy.compression_state) == len(own.trainable_variables)


def test_callbacks_without_a_model_are_called_as_by_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    tf_gc.CompressedMultiWorkerMirroredStrategy()
    epochs: list[int] = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    callbacks = keras.callbacks.CallbackList([callback])
    callbacks.on_train_begin()
    callbacks.on_epoch_end(3)
    callbacks.on_train_end()
    assert epochs == [3]
