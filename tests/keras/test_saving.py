"""Saved models, which load without tf_gc."""

from pathlib import Path

import numpy as np

from tests.fork_server import FORK_SERVER
from tests.keras.compressed import AUTO, compressed_strategy
from tests.keras.stock import data, fit


def test_a_saved_model_predicts_the_same_without_tf_gc(tmp_path: Path) -> None:
    trained = fit(compressed_strategy(2, AUTO)).model
    trained.save(tmp_path / "model.keras")
    trained.save_weights(tmp_path / "model.weights.h5")
    trained.export(tmp_path / "exported", verbose=False)
    np.save(tmp_path / "x.npy", data()[0])
    # In a process that does not import it.
    FORK_SERVER.output("tests.keras.load_without_tf_gc:main", str(tmp_path))
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
