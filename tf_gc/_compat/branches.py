"""A `tf.cond` whose outputs do not wait for each other.

In a `tf.function`, TensorFlow lets every output of a branch wait for all side effects of that
branch (automatic control dependencies), and so none of many sums of gradients can be used before
the last one has arrived. Here the side effects of a branch happen in the same order, and before
whatever comes after the conditional and touches the same variables, but an output waits only for
what it is computed from.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_gc._compat import symbols


def cond(pred: tf.Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Returns what `true_fn` or `false_fn` returns: a `tf.cond` without waiting for all of it.

    They return tensors, variables (which are read) or `None`, in the same structure.
    """
    # Elsewhere there are no dependencies to get rid of.
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if graph is None or not graph._add_control_dependencies:
        return tf.cond(pred, true_fn, false_fn)
    graph._add_control_dependencies = False  # TensorFlow adds none to the branches
    try:
        return tf.cond(pred, _with_dependencies(true_fn), _with_dependencies(false_fn))
    finally:
        graph._add_control_dependencies = True


def _with_dependencies(function: Callable[[], Any]) -> Callable[[], Any]:
    def branch() -> Any:
        with symbols.AutomaticControlDependencies() as dependencies:
            # A variable, too, is read in its turn among the side effects.
            results = tf.nest.map_structure(
                lambda result: None if result is None else tf.identity(result), function()
            )
        # Ops that have no influence on a result have to run, too.
        graph = tf.compat.v1.get_default_graph()
        graph.control_outputs.extend(dependencies.ops_which_must_run)
        return results

    return branch
