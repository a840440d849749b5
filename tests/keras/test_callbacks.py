"""Each public callback of Keras does on several workers what it does in one process."""

import inspect

import keras
import pytest

from tf_gc.keras.multi_worker import one_writer

FILES = "only the chief's files are kept"
SAME = "all workers get the same logs, so they decide the same"
OWN = "every worker has one for itself, which changes nothing that workers share"
HOW = {
    **dict.fromkeys(("BackupAndRestore", "CSVLogger", "ModelCheckpoint"), FILES),
    **dict.fromkeys(("OrbaxCheckpoint", "TensorBoard"), FILES),
    **dict.fromkeys(("EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau"), SAME),
    **dict.fromkeys(("SwapEMAWeights", "TerminateOnNaN"), SAME),
    **dict.fromkeys(("Callback", "CallbackList", "History", "LambdaCallback"), OWN),
    "ProgbarLogger": OWN,
    "RemoteMonitor": "every worker sends its logs, as every process does",
}
WRITING = {"file_utils", "gfile", "ocp", "open", "save", "save_weights", "summary"}


def public_callbacks() -> dict[str, type]:
    return {name: each for name, each in vars(keras.callbacks).items() if inspect.isclass(each)}


def test_how_each_is_covered_is_known() -> None:
    # OrbaxCheckpoint is not in older versions of Keras.
    assert public_callbacks().keys() | {"OrbaxCheckpoint"} == HOW.keys()


def names_in(callback: type) -> set[str]:
    methods = [each for each in vars(callback).values() if inspect.isfunction(each)]
    return {name for method in methods for name in method.__code__.co_names}


@pytest.mark.parametrize("name", sorted(public_callbacks()))
def test_those_that_write_files_write_those_of_the_chief(name: str) -> None:
    callback = public_callbacks()[name]
    path = one_writer._CALLBACKS.get(callback)
    assert (path is not None) == (HOW[name] == FILES) == bool(WRITING & names_in(callback))
    assert path is None or path in inspect.signature(callback).parameters
