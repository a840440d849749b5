"""The private parts of Keras 3 that tf_gc needs, each with its purpose.

No other module imports `keras.src` or uses private attributes that are not listed here.
"""

import keras

from tf_gc._compat.lookup import Attributes, require

# Keras 3 before this trains other weights with accumulated gradients and moving averages.
_OLDEST_KERAS = (3, 10)

OPTIMIZER = Attributes(
    "keras.src.backend.tensorflow.optimizer.TFOptimizer",
    {
        "_all_reduce_sum_gradients": "to sum gradients, or silently nothing is compressed",
        "_overwrite_variables_directly_with_gradients": "to give all replicas the same scales",
        "_clip_gradients": "to clip the sum of the gradients rather than each replica's",
        "_distribution_strategy add_variable_from_reference": "to say that a model or an optimizer "
        "was made outside of its strategy's scope",
        "_backend_apply_gradients _backend_update_step _apply_weight_decay _trainable_variables "
        "_backend_increment_gradient_accumulators _accumulated_gradients _get_variable_index "
        "_backend_reset_gradient_accumulators _update_model_variables_moving_average _iterations "
        "_overwrite_model_variables_with_average_value": "to let the replicas decide together what "
        "a step of the optimizer does",
    },
)
LAYER = Attributes(
    "keras.layers.Layer",
    {
        "_track_variable": "to learn which weights layers make; replicas would drift apart",
        "_flatten_layers supports_jit": "to name a layer that XLA cannot compile",
    },
)
VARIABLE = Attributes(
    "keras.Variable",
    {"_value": "to learn when Keras makes a weight whose updates replicas have to share"},
)
TRAINER = Attributes(
    "keras.src.backend.tensorflow.trainer.TensorFlowTrainer",
    {
        "_maybe_symbolic_build": "to build a model from the batch of one replica",
        "_make_function": "to let XLA compile the step of each replica",
    },
)
COMPILED = Attributes("keras.src.trainers.trainer.Trainer", {"compile": "to refuse such layers"})
EPOCH_ITERATOR = Attributes(
    "keras.src.backend.tensorflow.trainer.TFEpochIterator",
    {
        "reset _distribute_strategy _distributed_dataset _num_batches": "to give all workers as "
        "many steps; they would wait for each other for ever"
    },
)
BACKUP = Attributes(
    "keras.callbacks.BackupAndRestore",
    {
        "_current_epoch": "to write the epoch to a backup",
        "_save_model": "to save in another way",
        "_should_save_on_batch": "to save as often as Keras would",
    },
)
RESTORED_MODEL = Attributes(
    "keras.src.backend.tensorflow.trainer.TensorFlowTrainer",
    {"_initial_epoch": "to go on with the epoch of a backup"},
)

ATTRIBUTES = (OPTIMIZER, LAYER, VARIABLE, TRAINER, COMPILED, EPOCH_ITERATOR, BACKUP, RESTORED_MODEL)


def check(several_workers: bool) -> None:
    """Raises ImportError if Keras 3 is not one that tf_gc knows, on the TensorFlow backend.

    A program may use tf_keras instead, or as well.
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
    require(OPTIMIZER, LAYER, VARIABLE, TRAINER, COMPILED)
    if several_workers:
        require(EPOCH_ITERATOR)
