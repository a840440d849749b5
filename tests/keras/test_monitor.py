"""CompressionMonitor writes what `strategy.report()` says, for TensorBoard."""

import logging
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_gc
from tests.cases import cases
from tests.keras import stock
from tests.keras.compressed import AUTO, compressed_strategy

Points = dict[str, dict[int, float]]


def points(folder: Path) -> Points:
    """The scalars in the event files of a folder: values by name and step."""
    found: Points = {}
    for path in sorted(folder.glob("events.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                by_step = found.setdefault(value.tag.removeprefix("compression/"), {})
                assert event.step not in by_step, "written twice"
                by_step[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def monitored(
    folder: Path, strategy: Any, epochs: int, samples: int = stock.SAMPLES, **arguments: Any
) -> tuple[Points, keras.Model]:
    """Trains, by default four steps an epoch; a step of two is measured."""
    model = stock.compiled(strategy, **arguments)
    x, y = stock.data(samples)
    monitor = tf_gc.keras.CompressionMonitor(folder, every=2, per_variable=True)
    model.fit(x, y, stock.BATCH, epochs, 0, [monitor], shuffle=False)
    return points(folder), model


@cases("steps", 1, 2)  # of which Keras announces the first
def test_it_writes_what_the_report_says_and_changes_no_weight(tmp_path: Path, steps: int) -> None:
    strategy = compressed_strategy(params=AUTO)
    found, model = monitored(tmp_path / "first", strategy, epochs=4, steps_per_execution=steps)
    report = strategy.report()
    assert report.compressed is not None
    assert report.measured_step == 15
    density = found["density"]
    assert set(density) <= {1, 3, 5, 7, 9, 11, 13, 15}
    assert {1, 15} <= set(density)
    assert density[15] == pytest.approx(report.density)
    assert found["residual_ratio"][15] == pytest.approx(report.residual_ratio)
    assert set(found["sent_bytes"].values()) == {report.traffic.sent_bytes}
    assert found["step_seconds"][15] > 0
    assert "full_precision_step_seconds" not in found
    names = [name for name in found if name.startswith("residual_ratio/")]
    assert len(names) == len(model.trainable_variables)
    for variable, ratio in report.residual_ratios.items():
        name = f"residual_ratio/{variable.split(':')[0]}"
        assert found[name][15] == pytest.approx(ratio)
    assert all(np.isfinite(list(values.values())).all() for values in found.values())
    stock.assert_same_weights(model, stock.fit(compressed_strategy(), epochs=4).model)

    # Another one goes on where the optimizer is.
    again = tf_gc.keras.CompressionMonitor(tmp_path / "again", every=1)
    model.fit(*stock.data(), batch_size=stock.BATCH, epochs=1, verbose=0, callbacks=[again])
    measured = set(range(16 + steps, 21, steps))
    assert set(points(tmp_path / "again")["density"]) == measured
    assert not any(name.startswith("residual_ratio/") for name in points(tmp_path / "again"))


def test_a_warm_up_has_no_points_and_gives_the_level_line(tmp_path: Path) -> None:
    strategy = compressed_strategy(params=tf_gc.Quantized(bypass_size=0))
    found, _ = monitored(tmp_path, strategy, epochs=2, samples=384)
    report = strategy.report()
    assert min(found["density"]) == report.warm_up_steps + 1
    (level,) = set(found["full_precision_step_seconds"].values())
    assert level == pytest.approx(report.full_precision.median)


def test_other_strategies_have_nothing_to_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="absl")
    monitored(tmp_path, stock.stock_strategy(), epochs=1)
    assert not list(tmp_path.iterdir())
    assert "the model's strategy is not one of tf_gc" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"log_dir": ""}, "log_dir must name a folder, got ''"),
        ({"every": 0}, "every must be a positive integer, got 0"),
        ({"every": 2.5}, r"every must be a positive integer, got 2\.5"),
        ({"every": True}, "every must be a positive integer, got True"),
        ({"per_variable": 1}, "per_variable must be True or False, got 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        tf_gc.keras.CompressionMonitor(**{"log_dir": "logs", **arguments})


def test_keras_does_not_wait_for_each_step_for_its_sake() -> None:
    # Keras looks for callbacks that have this method, and then reads the metrics of every step.
    ours, nobodys = tf_gc.keras.CompressionMonitor, keras.callbacks.Callback
    assert ours.on_train_batch_end is nobodys.on_train_batch_end
    assert ours.on_batch_end is nobodys.on_batch_end
