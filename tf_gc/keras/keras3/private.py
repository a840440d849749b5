"""What tf_gc needs of Keras 3's private parts, each with its purpose.

No other module imports `keras.src` or uses private attributes that are not listed here. A hook
requires its attributes when it is installed. If one moved, making a strategy fails: otherwise
training would go on without compression, or with replicas that drift apart, without a word.
"""

from typing import Any

import keras

from tf_gc._compat.lookup import Attributes, require, symbol

# Keras 3 before this trains other weights with accumulated gradients and moving averages.
_OLDEST_KERAS = (3, 10)
_UNCOMPRESSED = "to sum the gradients, which would otherwise go uncompressed without a word"
_WHOLE_STEPS = "to let the replicas decide together what a step of the optimizer does"
_OPTIMIZER = ("keras.src.backend.tensorflow.optimizer", "TFOptimizer")
_TRAINER = ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer")
_EPOCH_ITERATOR = ("keras.src.backend.tensorflow.trainer", "TFEpochIterator")

# The methods of an optimizer that the hook replaces.
STEPS = ("_all_reduce_sum_gradients", "_backend_apply_gradients", "_clip_gradients")

OPTIMIZER = Attributes(
    *_OPTIMIZER,
    {
        "_all_reduce_sum_gradients": _UNCOMPRESSED,
        "_backend_apply_gradients": _WHOLE_STEPS,
        "_backend_update_step": _WHOLE_STEPS,
        "_clip_gradients": "to clip the sum of the gradients rather than those of each replica",
        "_apply_weight_decay": _WHOLE_STEPS,
        "_iterations": _WHOLE_STEPS,
        "_accumulated_gradients": _WHOLE_STEPS,
        "_get_variable_index": _WHOLE_STEPS,
        "_backend_increment_gradient_accumulators": _WHOLE_STEPS,
        "_backend_reset_gradient_accumulators": _WHOLE_STEPS,
        "_trainable_variables": _WHOLE_STEPS,
        "_update_model_variables_moving_average": _WHOLE_STEPS,
        "_overwrite_model_variables_with_average_value": _WHOLE_STEPS,
    },
)
LAYER = Attributes(
    "keras.layers",
    "Layer",
    {"_track_variable": "to learn which weights layers make; replicas would drift apart"},
)
VARIABLE = Attributes(
    "keras",
    "Variable",
    {"_direct_assign": "to learn which weights layers update; replicas would drift apart"},
)
TRAINER = Attributes(
    *_TRAINER, {"_maybe_symbolic_build": "to build a model from the batch of one replica"}
)
_SAME_STEPS = "to give all workers as many steps; they would wait for each other for ever"
EPOCH_ITERATOR = Attributes(
    *_EPOCH_ITERATOR,
    {
        "reset": _SAME_STEPS,
        "_distribute_strategy": _SAME_STEPS,
        "_distributed_dataset": _SAME_STEPS,
        "_num_batches": _SAME_STEPS,
    },
)
BACKUP = Attributes(
    "keras.callbacks",
    "BackupAndRestore",
    {
        "_current_epoch": "to write the epoch to a backup",
        "_last_batch_seen": "to write the batch to a backup",
        "_save_model": "to save in another way",
        "_should_save_on_batch": "to save as often as Keras would",
    },
)
RESTORED_MODEL = Attributes(*_TRAINER, {"_initial_epoch": "to go on with the epoch of a backup"})

ATTRIBUTES = (OPTIMIZER, LAYER, VARIABLE, TRAINER, EPOCH_ITERATOR, BACKUP, RESTORED_MODEL)


def check_version() -> None:
    """Checks that Keras 3 is one that tf_gc knows, on the TensorFlow backend.

    A program may use tf_keras instead, or as well.

    Raises:
      ImportError: if they do not.
    """
    major, minor = (int(part) for part in keras.__version__.split(".")[:2])
    if (major, minor) < _OLDEST_KERAS:
        oldest = ".".join(map(str, _OLDEST_KERAS))
        raise ImportError(
            f"tf_gc needs Keras {oldest} or newer, found {keras.__version__}: pip install "
            f"'keras>={oldest}'"
        )
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            f"tf_gc needs Keras on the TensorFlow backend; the backend is "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow."
        )


def optimizer_class() -> Any:
    """Returns the class of all optimizers, which sums gradients over replicas."""
    require(OPTIMIZER)
    return symbol(*_OPTIMIZER, "where Keras reduces gradients")


def layer_class() -> Any:
    """Returns the class of all layers and models."""
    require(LAYER, VARIABLE)
    return keras.layers.Layer


def trainer_class() -> Any:
    """Returns the class that trains models on the TensorFlow backend."""
    require(TRAINER)
    return symbol(*_TRAINER, "where Keras builds models")


def epoch_iterator_class() -> Any:
    """Returns the class that iterates over the batches of an epoch."""
    require(EPOCH_ITERATOR)
    return symbol(*_EPOCH_ITERATOR, "where Keras counts batches")


def check_backup() -> None:
    """Checks that Keras makes backups in the way that tf_gc knows.

    Raises:
      ImportError: if it does not.
    """
    require(BACKUP, RESTORED_MODEL)
