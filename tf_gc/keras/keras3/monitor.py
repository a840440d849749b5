"""CompressionMonitor: what compression does, in TensorBoard."""

import os
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from tf_gc.keras.keras2 import OfTrainBatches
from tf_gc.keras.strategy import KerasStrategy, strategy_of
from tf_gc.observe.report import Report
from tf_gc.params.arguments import POSITIVE, check, integer

# Tells TensorBoard that a value belongs to its page of scalars.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
)


class CompressionMonitor(OfTrainBatches, keras.callbacks.Callback):
    """Writes what compression does to a folder that TensorBoard shows.

    ```python
    model.fit(..., callbacks=[tf_gc.keras.CompressionMonitor("logs")])
    ```

    The scalars, which docs/monitoring.md explains, are `compression/step_seconds`,
    `full_precision_step_seconds`, `sent_bytes`, `density`, `residual_ratio` and, with
    `per_variable`, `residual_ratio/<variable>`, at the optimizer's steps that were measured. With
    several workers the chief writes its own measurements. Under parameter servers it only writes
    `sent_bytes`, after each epoch. Under other strategies than tf_gc's it writes nothing but a
    warning.
    """

    def __init__(
        self, log_dir: str | os.PathLike[str], every: int = 100, per_variable: bool = False
    ) -> None:
        """Initializes the callback.

        Args:
          log_dir: a folder for the events, or a URL of one.
          every: one compressed step in `every` is measured, which reads gradients and residuals.
          per_variable: whether to write the norms of each variable.

        Raises:
          ValueError: if `log_dir` is empty, `every` is not a positive integer or `per_variable`
            is not a bool.
        """
        super().__init__()
        self.log_dir = os.fspath(log_dir)
        check(bool(self.log_dir), "log_dir must name a folder", log_dir)
        check(isinstance(per_variable, bool), "per_variable must be True or False", per_variable)
        self.every = integer("every must be a positive integer", every, allowed=POSITIVE)
        self.per_variable = per_variable
        self._strategy: KerasStrategy | None = None
        self._writer: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        strategy = strategy_of(self.model)
        if strategy is None:
            logging.warning(
                "tf_gc: CompressionMonitor writes nothing: the model's strategy is not one of tf_gc"
            )
            return
        optimizer = getattr(self.model, "optimizer", None)
        done = 0 if optimizer is None else int(optimizer.iterations.numpy())
        if not strategy.is_chief:
            return
        self._strategy = strategy
        if strategy.asynchronous:
            return
        strategy.measure_every(self.every)
        report = strategy.report()
        # The optimizer's steps less the recorder's, which a restart sets to zero.
        self._offset = done - report.warm_up_steps - report.compressed_steps
        self._written = report.measured_step
        self._since_look = self._batches = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._batches = 0

    # Not `on_train_batch_end`: Keras waits for every step of a model with such a callback.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._strategy is None or self._strategy.asynchronous:
            return
        # With steps_per_execution, batches in between are not announced.
        self._since_look += batch - self._batches
        self._batches = batch
        if self._since_look >= self.every:
            self._write_latest()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._strategy is not None:
            self._write_latest()
        if self._writer is not None:
            self._writer.flush()

    def on_train_end(self, logs: Any = None) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = self._strategy = None

    def _write_latest(self) -> None:
        assert self._strategy is not None
        if self._strategy.asynchronous:
            if (traffic := self._strategy.traffic) is not None:
                done = int(self.model.optimizer.iterations.numpy())
                self._write(done, {"sent_bytes": traffic.sent_bytes})
            return
        self._since_look = 0
        report = self._strategy.report()
        if report.measured_step in (0, self._written):
            return
        self._written = report.measured_step
        step = self._offset + report.warm_up_steps + report.measured_step
        self._write(step, _scalars(report, self.per_variable))

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.log_dir)
        with self._writer.as_default():
            for name, value in scalars.items():
                # `tf.summary.scalar` would need the package tensorboard.
                tf.summary.write(f"compression/{name}", float(value), step, _SCALAR)


def _scalars(report: Report, per_variable: bool) -> dict[str, float]:
    compressed, full, traffic = report.compressed, report.full_precision, report.traffic
    scalars: dict[str, float | None] = {
        "step_seconds": None if compressed is None else compressed.median,
        "full_precision_step_seconds": None if full is None else full.median,
        "sent_bytes": None if traffic is None else traffic.sent_bytes,
        "density": report.density,
        "residual_ratio": report.residual_ratio,
    }
    if per_variable:
        for variable, ratio in report.residual_ratios.items():
            scalars[f"residual_ratio/{variable.split(':')[0]}"] = ratio
    return {name: value for name, value in scalars.items() if value is not None}
