"""The promises of a strategy of tf.distribute, as functions that check them.

A promise is a function of a strategy, whatever its devices and workers. `test_one_host.py` and
`test_workers.py` run all of them under the stock strategies and under ours.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

MODULES = ("contexts", "reductions", "graphs", "variables", "inputs", "optimizers", "training")
MODES = ("eager", "function")


@dataclasses.dataclass(frozen=True)
class Promise:
    """A check, and who can be asked for it."""

    name: str  # of the module, the function and the case
    check: Callable[..., None]
    case: tuple[Any, ...]  # its arguments after the strategy
    one_host: bool  # whether several workers are not asked
    broken_by_stock: str

    def keep(self, strategy: tf.distribute.Strategy, folder: Path) -> None:
        """Raises what shows that the promise is broken; all workers see the folder, for files."""
        takes_folder = "folder" in inspect.signature(self.check).parameters
        self.check(strategy, *self.case, **({"folder": folder} if takes_folder else {}))


_made: dict[str, Promise] = {}


def promise(
    *,
    each: Iterable[Any] = ((),),
    on_workers: Iterable[Any] | None = None,
    broken_by_stock: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes promises of a function: one for each case, a value or a tuple of arguments.

    Args:
      each: the cases.
      on_workers: those that several workers are asked for, if not all.
      broken_by_stock: the strategies of TensorFlow that do not keep it: "workers" or "both".
    """
    asked = None if on_workers is None else list(on_workers)

    def register(check: Callable[..., None]) -> Callable[..., None]:
        for case in each:
            arguments = case if isinstance(case, tuple) else (case,)
            name = f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
            if arguments:
                name += f"[{'-'.join(map(_label, arguments))}]"
            alone = asked is not None and case not in asked
            _made[name] = Promise(name, check, arguments, alone, broken_by_stock)
        return check

    return register


def _label(argument: Any) -> str:
    return str(getattr(argument, "__name__", None) or getattr(argument, "name", argument))


def promises(stock: bool, workers: bool) -> list[Promise]:
    """A promise of the stock strategy or of ours, on one host or on several workers."""
    for module in MODULES:
        importlib.import_module(f"tests.conformance.{module}")
    broken = ("both", "workers") if workers else ("both",)
    return [
        each
        for each in _made.values()
        if not (workers and each.one_host) and not (stock and each.broken_by_stock in broken)
    ]


def kept_by_workers(kind: Callable[[], Any], part: str) -> list[str]:
    """Keeps the promises with this in their name on each worker; returns their names."""
    strategy = kind()
    kept = [each for each in promises(stock=False, workers=True) if part in each.name]
    for each in kept:
        each.keep(strategy, Path())
    return [each.name for each in kept]


def staged(mode: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, to run eagerly or as a `tf.function`."""
    return function if mode == "eager" else tf.function(function)


def replica() -> tf.Tensor:
    """Returns the number of the replica that runs this code, of all workers' replicas."""
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)


def number() -> tf.Tensor:
    """Returns a replica's number from 1 on, as float32."""
    return tf.cast(replica() + 1, tf.float32)


def distributed(strategy: tf.distribute.Strategy, values: Sequence[Any]) -> Any:
    """Returns a distributed value with `values[i]` on replica i."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[int(context.replica_id_in_sync_group)]
    )


def of_replicas(
    strategy: tf.distribute.Strategy, make: Callable[[int], Any]
) -> tuple[list[Any], Any]:
    """Returns `make(i)` for all replicas i, as a list and as a distributed value."""
    values = [make(i) for i in range(strategy.num_replicas_in_sync)]
    return values, distributed(strategy, values)


def local_ids(strategy: tf.distribute.Strategy) -> list[int]:
    ids = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(int(context.replica_id_in_sync_group))
    )
    return numbers(strategy, ids)


def local(strategy: tf.distribute.Strategy, value: Any) -> list[np.ndarray]:
    return [np.asarray(tf.convert_to_tensor(v)) for v in strategy.experimental_local_results(value)]


def numbers(strategy: tf.distribute.Strategy, value: Any) -> list[int]:
    return [int(each) for each in local(strategy, value)]


def assert_on_all(strategy: tf.distribute.Strategy, value: Any, expected: Any) -> None:
    """This worker's replicas all have the expected array, exactly."""
    values = local(strategy, value)
    assert len(values) == len(strategy.extended.worker_devices)
    for each in values:
        np.testing.assert_array_equal(each, expected)


def number_of_workers(strategy: tf.distribute.Strategy) -> int:
    return strategy.num_replicas_in_sync // len(strategy.extended.worker_devices)


def task(strategy: tf.distribute.Strategy) -> int:
    return local_ids(strategy)[0] // len(strategy.extended.worker_devices)
