"""Finds weights of layers that hold samples, of which a mean over replicas makes no sense.

A running statistic is computed from its old value as a whole. A queue of samples, such as the keys
of MoCo (He et al. 2020), keeps some of its elements and replaces others. A graph shows which.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_gc import _compat

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


def written_samples(
    graph: tf.Graph, operations: Sequence[tf.Operation], variables: Sequence[Any]
) -> list[int]:
    """Returns the positions of the variables into which operations of a graph write samples.

    The operations are in the order in which they were made, and each is looked at once: a model
    with more variables has more of them. Variables are components of distributed ones.
    """
    bits = {id(variable.handle): 1 << i for i, variable in enumerate(variables)}
    captured = [(id(inner), bits.get(id(outer))) for outer, inner in _compat.captures(graph)]
    bits.update((inner, bit) for inner, bit in captured if bit)
    found = 0
    old: dict[int, int] = {}  # for a tensor, the bits of the variables that it is computed from
    for operation in operations:
        inputs, kind = operation.inputs, operation.type
        own = bits.get(id(inputs[0]), 0) if inputs else 0
        reads = kind in ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
        computed_from = own if reads else 0
        for each in inputs:
            computed_from |= old.get(id(each), 0)
        if computed_from:
            old.update((id(output), computed_from) for output in operation.outputs)
        new = _WRITING_PARTS.get(kind)
        if new is not None and not old.get(id(inputs[new]), 0) & own:
            found |= own
        if own and kind == "AssignVariableOp":
            mixed = any(_mixes(source, old, own) for source in _sources(inputs[1]))
            found |= own * mixed
    return [i for i in range(len(variables)) if found >> i & 1]


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


def _mixes(operation: tf.Operation, old: dict[int, int], own: int) -> bool:
    from_own = [bool(old.get(id(each), 0) & own) for each in operation.inputs]
    if operation.type == "ConcatV2":
        return len(set(from_own[:-1])) == 2
    if operation.type in _MIXING:
        kept, new = _MIXING[operation.type]
        return from_own[kept] and not from_own[new]
    return False
