"""Finds weights of layers that hold samples, of which a mean over replicas makes no sense.

A running statistic is computed from its old value as a whole. A queue of samples, such as the keys
of MoCo (He et al. 2020), keeps some of its elements and replaces others. A graph shows which.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

# Positions of an op's inputs that say which elements the assigned value keeps, and which it gets.
_MIXING = {"TensorScatterUpdate": (0, 2), "XlaDynamicUpdateSlice": (0, 1)}

# Ops that write some elements of a variable, and the input with the new ones.
_WRITING_PARTS = {
    "ResourceScatterUpdate": 2,
    "ResourceScatterNdUpdate": 2,
    "ResourceStridedSliceAssign": 4,
}

# Ops after which a sample is still a sample. Statistics come from others, such as Mean.
_KEEPING_ELEMENTS = {
    *("Cast", "ExpandDims", "Identity", "Mul", "RealDiv", "Reshape", "Roll", "Slice", "Squeeze"),
    *("StopGradient", "StridedSlice", "Transpose"),
}


def holds_samples(graph: tf.Graph, operations: Sequence[tf.Operation], variable: Any) -> bool:
    """Returns whether operations of a graph, in the order in which they were made, write samples.

    The variable is a component of a distributed one.
    """
    handles = {id(variable.handle)}
    handles.update(id(inner) for outer, inner in graph.captures if outer is variable.handle)
    from_old: set[int] = set()
    for operation in operations:
        inputs = operation.inputs
        reads = operation.type in ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
        if (reads and id(inputs[0]) in handles) or any(id(each) in from_old for each in inputs):
            from_old.update(id(output) for output in operation.outputs)
    for operation in operations:
        inputs = operation.inputs
        if not inputs or id(inputs[0]) not in handles:
            continue
        new = _WRITING_PARTS.get(operation.type)
        if new is not None and id(inputs[new]) not in from_old:
            return True
        if operation.type == "AssignVariableOp" and any(
            _mixes(each, from_old) for each in _sources(inputs[1])
        ):
            return True
    return False


def _sources(tensor: tf.Tensor) -> Iterator[tf.Operation]:
    waiting, seen = [tensor.op], set()
    while waiting:
        operation = waiting.pop()
        if operation.name in seen:
            continue
        seen.add(operation.name)
        yield operation
        if operation.type in _KEEPING_ELEMENTS:
            waiting.extend(each.op for each in operation.inputs)


def _mixes(operation: tf.Operation, from_old: set[int]) -> bool:
    inputs = list(operation.inputs)
    if operation.type == "ConcatV2":
        kinds = {id(each) in from_old for each in inputs[:-1]}
        return len(kinds) == 2
    if operation.type in _MIXING:
        kept, new = _MIXING[operation.type]
        return id(inputs[kept]) in from_old and id(inputs[new]) not in from_old
    return False
