"""Workers that train, and what they say of their steps."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_gc
from tests.multiworker import file_scenarios


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def steps_and_report(params: Any) -> dict[str, Any]:
    """Makes compressed steps; returns the verdicts in this worker's log, and the report."""
    log = _Lines()
    logging.getLogger("absl").addHandler(log)
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(compression_params=params)
    strategy.measure_every(1)  # so that the report is on the latest step, as `traffic` is
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in ((50, 100), (3000,))]
    random = np.random.default_rng(strategy.cluster_resolver.task_id)

    @tf.function(autograph=False)
    def step(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        def replica_step() -> list[tf.Tensor]:
            mine = [gradient * 1.0 for gradient in gradients]
            return tf_gc.all_reduce_gradients(list(zip(mine, variables, strict=True)))

        return strategy.run(replica_step)

    for number in range(80):
        sums = step(
            [
                tf.constant(random.standard_normal(v.shape).astype("f") / (number + 1))
                for v in variables
            ]
        )
    deadline = time.monotonic() + (600 if strategy.is_chief else 3)
    while not _verdicts(log.lines) and time.monotonic() < deadline:
        time.sleep(0.1)
    return {
        "chief": strategy.is_chief,
        "verdicts": _verdicts(log.lines),
        "report": strategy.report(),
        "traffic": strategy.traffic,
        "sums": [value.numpy() for value in sums],
    }


def fit_with_monitor(top: str) -> list[str]:
    """Trains with a monitor that writes to a folder of this worker, and returns what is there."""
    strategy = tf_gc.CompressedMultiWorkerMirroredStrategy(
        compression_params=tf_gc.Quantized(warm_up=False, bypass_size=0)
    )
    folder = Path(top, str(strategy.cluster_resolver.task_id))
    model = file_scenarios.make_model(strategy)
    file_scenarios.fit(model, [tf_gc.keras.CompressionMonitor(folder, every=2)], epochs=2)
    return [path.name for path in folder.glob("*")]


def _verdicts(lines: list[str]) -> list[str]:
    return [line for line in lines if "a step takes" in line]
