"""Checks what tf_gc needs of TensorFlow and Keras, and hooks into Keras 3 and tf_keras."""

import os
import sys

from tf_gc._compat import require_attributes
from tf_gc.keras import keras2
from tf_gc.keras.keras3 import optimizer_hook, private, trainer_hook, variable_hook, xla
from tf_gc.keras.multi_worker import one_writer
from tf_gc.keras.strategy import KerasStrategy

# By what TensorFlow takes tf_keras for tf.keras.
_LEGACY = ("1", "true", "True")


def install(strategy: KerasStrategy, several_workers: bool) -> None:
    """Hooks into Keras 3, and into tf_keras where the program uses it; further calls only check.

    The hooks act under strategies that extend `KerasStrategy`, with `several_workers` also those
    that let the workers of a job agree. Raises an ImportError that names a private part of
    TensorFlow or Keras that has moved: otherwise training would go on without compression, or
    replicas would drift apart.
    """
    require_attributes()
    private.check(several_workers)
    optimizer_hook.install()
    variable_hook.install()
    trainer_hook.install(several_workers)
    xla.install()
    if several_workers:
        one_writer.install()
    # To import tf_keras takes seconds. It knows by itself how workers train together.
    if "tf_keras" in sys.modules or os.environ.get("TF_USE_LEGACY_KERAS") in _LEGACY:
        keras2.install()
    strategy.unused.add(strategy)
