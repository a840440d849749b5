"""Residuals of Keras models: in checkpoints, and as long as their model."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tests.keras.compressed import (
    assert_replicas_agree,
    compressed_strategy,
    total_residual,
)
from tests.keras.stock import (
    BATCH,
    assert_same_weights,
    compiled,
    data,
    fit,
    named_mlp,
)


def _train_on(model: keras.Model) -> list[float]:
    return model.fit(*data(), batch_size=BATCH, epochs=2, verbose=0).history["loss"]


def test_training_resumes_with_all_that_was_not_sent(tmp_path: Path) -> None:
    saved = compressed_strategy(2)
    run = fit(saved, named_mlp)
    variables = run.model.trainable_variables
    checkpoint = tf.train.Checkpoint(model=run.model, compression=saved.compression_state)
    path = checkpoint.save(tmp_path / "checkpoint")
    totals = [total_residual(saved, variable) for variable in variables]
    assert all((total != 0).any() for total in totals)

    resumed = compressed_strategy(4)
    model = compiled(resumed, named_mlp)
    tf.train.Checkpoint(model=model, compression=resumed.compression_state).restore(path)
    assert_same_weights(model, run.model)
    for variable, expected in zip(model.trainable_variables, totals, strict=True):
        np.testing.assert_allclose(total_residual(resumed, variable), expected, rtol=1e-6)
        parts = resumed.compression_state.residuals_of(variable.value)
        for part in parts:
            np.testing.assert_allclose(part, expected / 4, rtol=1e-6)
    assert _train_on(model)[-1] < run.losses[-1]
    assert_replicas_agree(resumed, model.trainable_variables)

    # Into the same objects, after further training: as if that had not been.
    _train_on(run.model)
    checkpoint.restore(path)
    for variable, expected in zip(variables, totals, strict=True):
        np.testing.assert_allclose(total_residual(saved, variable), expected, rtol=1e-6)

    saved.compression_state.reset()
    for variable in variables:
        assert (total_residual(saved, variable) == 0).all()
    assert _train_on(run.model)[-1] < run.losses[-1]
    for variable in variables:
        assert (total_residual(saved, variable) != 0).any()
