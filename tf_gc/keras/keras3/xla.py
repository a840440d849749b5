"""The hooks by which `jit_compile=True` lets XLA compile the step of each replica.

Keras compiles the step of all replicas as one function, which fails: XLA compiles for one device,
and replicas meet in the optimizer. Here it compiles what a replica computes, with backward pass,
losses and metrics, and the optimizer gets the gradients outside of that.
"""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from tf_gc import _compat
from tf_gc._compat.lookup import owner_of
from tf_gc.gradients import path_of
from tf_gc.keras.hook import Method, hook, hook_in_replica
from tf_gc.keras.keras3 import private
from tf_gc.keras.strategy import KerasStrategy, strategy_of
from tf_gc.keras.variables import tf_variable
from tf_gc.observe.log import log_visibly

_NOT_COMPILED = {"EagerPyFunc", "LookupTableFindV2", "PyFunc", "PyFuncStateless"}  # nor strings
_IN_MAP = "compute it in the dataset's map()"
_ELSE = "or pass jit_compile=False to compile()"


def install() -> None:
    """Hooks into Keras' trainer and optimizers."""
    hook(owner_of(private.COMPILED), "compile", _compile)
    hook(owner_of(private.TRAINER), "_make_function", _make)
    for kind in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        hook_in_replica(kind, "apply", _apply)


@dataclasses.dataclass
class _Update:
    """What an optimizer was told to apply while a step was traced."""

    optimizer: Any
    gradients: list[Any]
    variables: list[Any]
    after: int  # the number of operations before


_traced: dict[tf.Graph, list[_Update]] = {}  # steps that are traced now, to be compiled


def _compile(keras_compile: Method, trainer: Any, *args: Any, **kwargs: Any) -> None:
    keras_compile(trainer, *args, **kwargs)
    strategy = strategy_of(trainer)
    wanted = kwargs.get("jit_compile") is True and not trainer.run_eagerly
    if strategy is None or strategy.asynchronous or not wanted:
        return
    for layer in trainer._flatten_layers():
        flags = [name for name in ("use_cudnn", "synchronized") if getattr(layer, name, False)]
        # Of the former Keras only warns that it compiles nothing. The latter meet other replicas.
        if not layer.supports_jit or "synchronized" in flags:
            way_out = f"pass {flags[0]}=False to it" if flags else _IN_MAP
            name = f"{type(layer).__name__} {layer.name!r}"
            raise ValueError(f"XLA cannot compile {name}: {way_out}, {_ELSE}")
    if trainer.jit_compile:
        log_visibly(
            f"tf_gc: XLA compiles the steps of {trainer.name} for each replica; sums of gradients "
            "and updates of weights stay outside"
        )


def _make(keras_make: Method, trainer: Any, step_function: Method) -> Any:
    strategy = strategy_of(trainer)
    if strategy is None or not trainer.jit_compile:
        return keras_make(trainer, step_function)
    trainer.jit_compile = False  # for the step of all replicas
    try:
        return keras_make(trainer, lambda data: _run_compiled(strategy, step_function, data))
    finally:
        trainer.jit_compile = True


@tf.autograph.experimental.do_not_convert
def _run_compiled(strategy: KerasStrategy, step_function: Method, data: Any) -> Any:
    """Calls a replica's step, compiled by XLA, and then the optimizers that it called."""
    updates: list[_Update] = []

    def compute() -> Any:
        graph = tf.compat.v1.get_default_graph()
        _traced[graph] = updates
        try:
            with tf.variable_creator_scope(_refuse_variable):
                outputs = step_function(data)
        finally:
            del _traced[graph]
        return outputs, [update.gradients for update in updates]

    # One for each replica, with its variables: XLA compiles for each device anyway.
    compiled = tf.function(compute, autograph=False, jit_compile=True).get_concrete_function()
    _check(compiled.graph, strategy, updates)
    outputs, gradients = compiled()
    for update, computed in zip(updates, gradients, strict=True):
        update.optimizer.apply(computed, update.variables)
    return outputs


def _apply(
    _: Any, keras_apply: Method, optimizer: Any, grads: Any, trainable_variables: Any = None
) -> Any:
    graph: Any = tf.compat.v1.get_default_graph()
    if graph not in _traced:
        return keras_apply(optimizer, grads, trainable_variables)
    variables = list(trainable_variables or optimizer._trainable_variables)
    after = len(graph.get_operations())
    _traced[graph].append(_Update(optimizer, list(grads), variables, after))


def _refuse_variable(_: Any, **kwargs: Any) -> None:
    raise RuntimeError(
        f"the variable {kwargs.get('name')} is made in a step that XLA compiles: make it before, "
        f"such as a keras.random.SeedGenerator in a layer's __init__(), {_ELSE}"
    )


def _check(graph: Any, strategy: KerasStrategy, updates: list[_Update]) -> None:
    """Raises an error that says what to do where XLA would fail or use weights too old."""
    if len({variable.device for variable in graph.variables}) > 1:
        created = strategy.extended.variable_created_in_scope
        paths = ", ".join(sorted(path_of(v) for v in graph.variables if not created(v)))
        raise RuntimeError(
            f"{paths}: made outside of the scope of the {type(strategy).__name__}, on one device, "
            f"of which XLA lets no other read: make all that a step uses in the scope, {_ELSE}"
        )
    definition = graph.as_graph_def()
    nested = (node for function in definition.library.function for node in function.node_def)
    for node in (*definition.node, *nested):
        arguments = graph.op_def_for_type(node.op).input_arg
        types = {each.type or node.attr[each.type_attr].type for each in arguments}
        if tf.string.as_datatype_enum in types or node.op in _NOT_COMPILED:
            raise ValueError(f"XLA cannot compile {node.name}: {_IN_MAP}, {_ELSE}")
    # Of several updates of a variable the first one remains.
    updated = {id(tf_variable(v).handle): (u.after, v) for u in updates[::-1] for v in u.variables}
    inner = {id(inner): updated.get(id(outer)) for outer, inner in _compat.captures(graph)}
    for number, operation in enumerate(graph.get_operations()):
        for after, variable in filter(None, (inner.get(id(each)) for each in operation.inputs)):
            if number >= after:
                raise RuntimeError(
                    f"the step uses {variable.path} after an optimizer updates it, but updates "
                    f"come after all that XLA compiles: compile parts of it by yourself, {_ELSE}"
                )
