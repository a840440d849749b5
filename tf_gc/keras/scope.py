"""What was made outside of the scope of a strategy, where it had to be inside."""

import functools
from typing import Any

import tensorflow as tf
from absl import logging

from tf_gc.gradients import path_of
from tf_gc.keras.strategy import KerasStrategy
from tf_gc.keras.variables import tf_variable

_warn_once = functools.cache(logging.warning)


def check_scope(optimizer: Any, variables: list[Any]) -> None:
    """Raises RuntimeError if the optimizer or the step is in a scope, and variables are not."""
    warn_of_forgotten_scope()
    for strategy in (optimizer._distribution_strategy, tf.distribute.get_strategy()):
        if isinstance(strategy, KerasStrategy):
            created = strategy.extended.variable_created_in_scope
            where = f"made outside of the scope of the {type(strategy).__name__}: make model and "
            where += "optimizer, and call compile(), inside of `with strategy.scope():`"
            if paths := [path_of(v) for v in map(tf_variable, variables) if not created(v)]:
                raise RuntimeError(f"{', '.join(paths)}: {where}")
            if not created(tf_variable(optimizer._iterations)):
                _warn_once(f"tf_gc: each replica counts the steps of {optimizer.name}, {where}")


def warn_of_forgotten_scope() -> None:
    """Warns of a step outside of all strategies while one of tf_gc was made and never used."""
    if KerasStrategy.unused and not tf.distribute.has_strategy():
        KerasStrategy.unused.clear()
        logging.warning(
            "tf_gc: training runs outside of strategy.scope(), so on one device and without "
            "compression: make model and optimizer inside of `with strategy.scope():`"
        )
