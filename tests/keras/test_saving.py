"""Models trained with tf_gc are saved as any other and loaded without tf_gc."""

from pathlib import Path

import keras
import numpy as np
import pytest

from tests.cases import matrix
from tests.fork_server import FORK_SERVER
from tests.keras.compressed import AUTO, compressed_strategy
from tests.keras.stock import Array, assert_same_weights, data, fit


@pytest.fixture(scope="module")
def trained() -> keras.Model:
    return fit(compressed_strategy(2, AUTO)).model


@pytest.fixture(scope="module")
def loaded(trained: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Array]:
    """What the model predicts in a process that has not imported tf_gc, by kind of file."""
    directory = tmp_path_factory.mktemp("saved")
    trained.save(directory / "model.keras")
    trained.save_weights(directory / "model.weights.h5")
    trained.export(directory / "exported", verbose=False)
    np.save(directory / "x.npy", data()[0])
    FORK_SERVER.output("tests.keras.load_without_tf_gc:main", str(directory))
    with np.load(directory / "loaded.npz") as arrays:
        return dict(arrays)


def test_a_process_that_trains_alone_writes_where_it_is_told(
    trained: keras.Model, tmp_path: Path
) -> None:
    strategy = trained.distribute_strategy
    assert strategy.is_chief
    assert strategy.write_path(tmp_path) is tmp_path


@pytest.mark.parametrize("kind", ["keras", "weights", "exported"])
def test_a_saved_model_predicts_the_same_without_tf_gc(
    trained: keras.Model, loaded: dict[str, Array], kind: str
) -> None:
    expected = trained.predict(data()[0], verbose=0)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(loaded[kind], expected, rtol=1e-5, atol=1e-6)


@matrix
def test_a_saved_model_goes_on_training_under_another_strategy(
    trained: keras.Model, tmp_path: Path
) -> None:
    trained.save(tmp_path / "model.keras")
    strategy = compressed_strategy(2, AUTO)
    with strategy.scope():
        model = keras.models.load_model(tmp_path / "model.keras")
    assert_same_weights(model, trained)
    assert int(model.optimizer.iterations.numpy()) == int(trained.optimizer.iterations.numpy()) > 0
    before = model.evaluate(*data(), return_dict=True, verbose=0)["loss"]
    history = model.fit(*data(), batch_size=16, epochs=3, verbose=0).history
    assert history["loss"][-1] < before
    assert len(strategy.compression_state) == 4
