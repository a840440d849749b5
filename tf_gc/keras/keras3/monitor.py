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

    The scalars are of the optimizer's steps that were measured: `compression/step_seconds` and
    `full_precision_step_seconds`, medians; `sent_bytes`, by a replica in a step; `density`, the
    share of codes that do not stand for zero; `residual_ratio`, the norm of the residuals divided
    by the gradients' norm; and with `per_variable` the same as `residual_ratio/<variable>`. With
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

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        strategy, done = strategy_of(self.model), self._steps_done()
        if strategy is None:
            logging.warning(
                "tf_gc: CompressionMonitor writes nothing: the model's strategy is not one of tf_gc"
            )
        elif strategy.is_chief:
            self._strategy = strategy
            if not strategy.asynchronous:
                strategy.measure_every(self.every)
                report = strategy.report()
                # The optimizer's steps less the recorder's, which a restart sets to zero.
                self._offset = done - report.warm_up_steps - report.compressed_steps
                self._written = report.measured_step

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._looked = 0

    # Not `on_train_batch_end`: Keras waits for every step of a model with such a callback.
    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # With steps_per_execution, batches in between are not announced.
        if (
            self._strategy
            and not self._strategy.asynchronous
            and batch >= self._looked + self.every
        ):
            self._looked = batch
            self._write_latest(self._strategy)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._strategy:
            self._write_latest(self._strategy)
        if self._writer:
            self._writer.flush()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._writer:
            self._writer.close()
        self._writer = self._strategy = None

    def _steps_done(self) -> int:
        optimizer = getattr(self.model, "optimizer", None)
        return 0 if optimizer is None else int(optimizer.iterations.numpy())

    def _write_latest(self, strategy: KerasStrategy) -> None:
        if strategy.asynchronous:
            if traffic := strategy.traffic:
                self._write(self._steps_done(), {"sent_bytes": traffic.sent_bytes})
            return
        report = strategy.report()
        if report.measured_step not in (0, self._written):
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
