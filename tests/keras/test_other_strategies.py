"""What tf_gc leaves as it is: other strategies in its process, and files that load without it."""

from pathlib import Path

import keras
import numpy as np
import pytest

import tf_gc
from tests.bits import assert_same_bits
from tests.fork_server import FORK_SERVER
from tests.keras import without_tf_gc
from tests.keras.compressed import AUTO, compressed_strategy
from tests.keras.stock import data, fit


def test_other_training_is_that_of_a_process_without_tf_gc(tmp_path: Path) -> None:
    path = tmp_path / "expected.npz"
    FORK_SERVER.output("tests.keras.without_tf_gc:train", str(path))
    strategy = compressed_strategy()
    own = fit(strategy, epochs=1).model
    results = without_tf_gc.results()
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


def test_a_saved_model_predicts_the_same_without_tf_gc(tmp_path: Path) -> None:
    trained = fit(compressed_strategy(2, AUTO)).model
    trained.save(tmp_path / "model.keras")
    trained.save_weights(tmp_path / "model.weights.h5")
    trained.export(tmp_path / "exported", verbose=False)
    np.save(tmp_path / "x.npy", data()[0])
    # In a process that does not import it.
    FORK_SERVER.output("tests.keras.without_tf_gc:load", str(tmp_path))
    expected = trained.predict(data()[0], verbose=0)
    assert np.ptp(expected) > 0.1
    with np.load(tmp_path / "loaded.npz") as loaded:
        assert sorted(loaded) == ["exported", "keras", "weights"]
        for predicted in loaded.values():
            np.testing.assert_allclose(predicted, expected, rtol=1e-5, atol=1e-6)


def test_a_process_that_trains_alone_writes_where_it_is_told(tmp_path: Path) -> None:
    strategy = compressed_strategy()
    assert strategy.is_chief
    assert strategy.write_path(tmp_path) is tmp_path
