"""CompressedMirroredStrategy: several devices of one host."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.cluster.devices import check_device_names
from tf_gc.cluster.workers import Workers
from tf_gc.keras.install import install
from tf_gc.network.collectives import CollectiveOps, key_bases
from tf_gc.network.group import LocalNetwork
from tf_gc.params import CompressionParams, from_params
from tf_gc.strategies.compressed_all_reduce import CompressedAllReduce, check_cross_device_ops
from tf_gc.strategies.compressed_strategy import CompressedStrategy, refuse_params
from tf_gc.strategies.layer_state import RunsReplicas


class CompressedMirroredStrategy(CompressedStrategy, tf.distribute.MirroredStrategy):
    """`tf.distribute.MirroredStrategy` that sums gradients in compressed form.

    Only gradients are compressed. The base class reduces metrics, losses and the statistics of a
    synchronized BatchNormalization, to the bit as without compression. On a single device there is
    nothing to send and nothing is compressed.
    """

    def __init__(
        self,
        devices: Sequence[str | tf.config.LogicalDevice] | None = None,
        compression_params: CompressionParams | Mapping[str, Any] | None = None,
        *,
        cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
        average_layer_state: bool | None = None,
        clip_after_sum: bool = False,
    ) -> None:
        """Initializes the strategy.

        Args:
          devices: device strings such as `["GPU:0", "GPU:1"]`, or `tf.config.LogicalDevice`s;
            `None` for all GPUs, or the CPU without one.
          compression_params: `None` for `tf_gc.Quantized()`, such a value, or a dict in MXNet's
            form such as `{"type": "2bit", "threshold": 0.5}` or `{"type": "none"}`.
          cross_device_ops: reduces everything that is not compressed, as in
            `tf.distribute.MirroredStrategy`; `None` for what that strategy chooses.
          average_layer_state: whether weights that layers update by themselves in each replica,
            such as BatchNormalization's moving averages, are averaged over the replicas at the
            end of each `run`. `None`: yes, unless `compression_params` says to compress nothing.
          clip_after_sum: whether `clipnorm`, `global_clipnorm` and `clipvalue` of Keras' optimizers
            clip the sum of the gradients, as a process does that trains alone on the whole batch.
            `False`: each replica clips its own gradients, as in `tf.distribute.MirroredStrategy`.

        Raises:
          ValueError: if `compression_params` has an unknown type, key or value,
            `average_layer_state` or `clip_after_sum` is of another type, or `devices` is empty, has
            a device twice or one that does not exist or that the native ops were not built for.
          TypeError: if `devices`, `compression_params` or `cross_device_ops` is of another type.
          ImportError: if the installed TensorFlow or Keras lacks a private part that tf_gc needs.
        """
        refuse_params("devices", devices)
        check_device_names(devices)
        if isinstance(compression_params, tf.distribute.CrossDeviceOps):
            raise TypeError(
                "the second argument of CompressedMirroredStrategy is compression_params, got "
                f"{compression_params!r}; give it by name: cross_device_ops=..."
            )
        params = from_params(compression_params)
        check_cross_device_ops(cross_device_ops)
        self._set_options(params, average_layer_state, clip_after_sum)
        install(self, several_workers=False)
        self._collective_key_base = next(key_bases)
        extended = _CompressedMirroredExtended(self, devices, params, cross_device_ops)
        extended.layer_state = self.layer_state
        tf.distribute.Strategy.__init__(self, extended)


class _CompressedMirroredExtended(RunsReplicas, _compat.MirroredExtended):
    workers = Workers()

    def __init__(
        self, strategy: Any, devices: Any, params: CompressionParams, cross_device_ops: Any
    ) -> None:
        super().__init__(strategy, devices=devices, cross_device_ops=cross_device_ops)
        self._cross_device_ops: tf.distribute.CrossDeviceOps
        self.compressed_all_reduce = CompressedAllReduce(params, self._cross_device_ops)
        self.compressed_all_reduce.connect(LocalNetwork(self.worker_devices))
        self._cross_device_ops = self.compressed_all_reduce

    def _make_collective_ops_with_fallbacks(self) -> tf.distribute.CrossDeviceOps:
        stock = super()._make_collective_ops_with_fallbacks()
        if not isinstance(stock, _compat.CollectiveAllReduce):
            return stock  # different kinds of devices
        return CollectiveOps(
            self._devices,
            len(self._devices),
            self._communication_options,
            self._collective_keys,
            ordering_tokens={},
        )
