"""CompressedMirroredStrategy: several devices of one host."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_gc import _compat
from tf_gc.codecs import Codec, from_params
from tf_gc.distribute.collectives import CollectiveAllReduce, new_key_base
from tf_gc.distribute.compressed_strategy import CompressedStrategy, check_devices, make_plan
from tf_gc.distribute.cross_device_ops import CompressedAllReduce
from tf_gc.keras import optimizer_hook
from tf_gc.reduction.exchange import local_group


class CompressedMirroredStrategy(CompressedStrategy, tf.distribute.MirroredStrategy):
    """`tf.distribute.MirroredStrategy` that sums gradients in compressed form.

    ```python
    strategy = tf_gc.CompressedMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([...])
        model.compile(...)
    model.fit(...)
    ```

    Only gradients are compressed; metrics, losses and BatchNormalization statistics are
    reduced as by the base class, to the bit. On a single device there is nothing to send and
    nothing is compressed.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        compression_params: Codec | Mapping[str, Any] | None = None,
    ) -> None:
        """Initializes the strategy.

        Args:
          devices: device strings such as `["GPU:0", "GPU:1"]`; `None` for all GPUs, or the
            CPU without one.
          compression_params: `None` for `tf_gc.TwoBit()`, a codec, or a dict in MXNet's form
            such as `{"type": "2bit", "threshold": 0.5}` or `{"type": "none"}`.

        Raises:
          ValueError: if `compression_params` has an unknown type, key or value, or the native
            ops were not built for the devices.
          TypeError: if `compression_params` is of another type.
          ImportError: if gradients of the installed Keras cannot be intercepted.
        """
        codec = from_params(compression_params)
        optimizer_hook.install()
        self._collective_key_base = new_key_base()
        tf.distribute.Strategy.__init__(self, _CompressedMirroredExtended(self, devices, codec))
        check_devices(self.extended.worker_devices)


class _CompressedMirroredExtended(_compat.MirroredExtended):
    """MirroredExtended with CompressedAllReduce in front of its cross-device ops."""

    def __init__(
        self, strategy: CompressedMirroredStrategy, devices: Sequence[str] | None, codec: Codec
    ) -> None:
        super().__init__(strategy, devices=devices)
        self._cross_device_ops: tf.distribute.CrossDeviceOps
        self.compressed_all_reduce = CompressedAllReduce(
            self._cross_device_ops,
            codec,
            replicas=len(self.worker_devices),
            plan=make_plan(codec, 1, self.worker_devices, lambda devices: local_group(devices)),
        )
        self._cross_device_ops = self.compressed_all_reduce

    def _make_collective_ops_with_fallbacks(self) -> tf.distribute.CrossDeviceOps:
        stock = super()._make_collective_ops_with_fallbacks()
        if not isinstance(stock, _compat.CollectiveAllReduce):
            return stock  # different kinds of devices
        return CollectiveAllReduce(
            self._devices,
            len(self._devices),
            self._communication_options,
            self._collective_keys,
            ordering_tokens={},
        )
