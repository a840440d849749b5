"""How the gradients of a replica get to the strategy that sums them, and what is known of each."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_gc import _compat
from tf_gc.state.stream import Stream, named_stream, reducing, stream_of_call

GradientValue: TypeAlias = "tf.Tensor | tf.IndexedSlices | None"


def path_of(variable: Any) -> str:
    """Returns the path by which a user knows a `tf.Variable`: Keras' path of it, or its name."""
    # A distributed variable asks its value for attributes that it lacks, and so reads all of it.
    return vars(variable).get("_tf_gc_path") or variable.name.split(":")[0]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """A gradient as it is known before the first step; a pattern may be a function of this.

    Attributes:
      path: the path of its variable: `variable.path` of a Keras variable, such as
        "dense/kernel", and the name without ":0" of a `tf.Variable`.
      dtype: the gradient's dtype.
      shape: the shape of its variable.
      sparse: whether it is a `tf.IndexedSlices`, rows of its variable.
    """

    path: str
    dtype: tf.DType
    shape: tuple[int, ...]
    sparse: bool = False

    @property
    def elements(self) -> int:
        """The number of elements of its variable."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Uncompressed:
    """A gradient that is not compressed."""

    path: str  # of its variable
    reason: str  # and what to do about it, in words that follow "n gradients"
    excluded: bool = False  # whether by the user


def gradient_of(
    variable: Any, dtype: tf.DType, sparse: bool, earlier: set[int]
) -> Gradient | Uncompressed:
    """Returns what is known of a gradient, of a dtype, that is to be summed for a variable.

    `earlier` has the `id()` of each variable with a gradient in the step, and gets this one's: of
    several gradients only one can have the residual.
    """
    path = path_of(variable)
    if id(variable) in earlier:
        others = "have another gradient in the step: add up a variable's gradients"
        return Uncompressed(path, f"are of variables that {others}")
    earlier.add(id(variable))
    if not variable.shape.is_fully_defined():
        shape = variable.shape
        return Uncompressed(
            path, f"are of variables of unknown shape {shape}: give them a known one"
        )
    return Gradient(path, dtype, tuple(variable.shape), sparse)


def sum_gradients(
    grads_and_vars: Sequence[tuple[GradientValue, Any]], stream: Stream | None = None
) -> list[GradientValue]:
    """As `tf_gc.all_reduce_gradients`; without a stream it is the one of this call's number."""
    context = tf.distribute.get_replica_context()
    if context is None:
        raise RuntimeError(
            "tf_gc.all_reduce_gradients must be called in a replica context, that is in the "
            "function given to strategy.run"
        )
    variables = [variable for gradient, variable in grads_and_vars if gradient is not None]
    if not variables:
        return [None] * len(grads_and_vars)
    if _compat.in_xla_context(tf.compat.v1.get_default_graph()):
        raise ValueError(
            "tf_gc cannot sum gradients inside a function compiled by XLA: compute them there, and "
            "sum them outside of it, or pass jit_compile=False to tf.function() or compile()"
        )
    if stream is None:
        # Outside of any strategy the whole process has one context, so no runs can be counted.
        several = tf.distribute.has_strategy()
        stream = stream_of_call(context, variables) if several else named_stream("")
    pairs = zip(*grads_and_vars, strict=True)
    sums: list[GradientValue] = context.merge_call(functools.partial(_sum, stream), args=(*pairs,))
    return sums


def _sum(
    stream: Stream, strategy: tf.distribute.Strategy, gradients: Any, variables: Any
) -> list[Any]:
    """Returns the sums of all gradients that there are; called once for all local replicas."""
    sums = list(gradients)
    # TensorFlow hands on one tensor as it is where all local replicas have the same: their sum.
    several = strategy.num_replicas_in_sync > 1 and len(strategy.extended.worker_devices) > 1
    to_sum = [
        i
        for i, gradient in enumerate(gradients)
        if isinstance(gradient, tf.distribute.DistributedValues)
        or (gradient is not None and not several)
    ]
    # The variables travel as destinations: CompressedAllReduce tells a gradient by them.
    pairs = [(gradients[i], variables[i]) for i in to_sum]
    if pairs:
        with reducing(stream):
            totals = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
        for i, total in zip(to_sum, totals, strict=True):
            sums[i] = total
    return sums
