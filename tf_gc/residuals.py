"""Residuals: what each replica has not sent yet, for each variable of a model."""

import json
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc import trial, warm_up
from tf_gc.restored import Restore

# An argument of all variables that tf_gc makes in a step. If the first trace of a `tf.function`
# makes variables, even in an `init_scope`, TensorFlow traces the function a second time in order to
# lift the variables out of it. That would double the work until the first step, and these variables
# are made outside of the function anyway.
NOT_LIFTED = {"experimental_enable_variable_lifting": False}


class Zeros:
    """An initial value that is the same wherever it is made, so that no worker has to send it.

    Workers of a stock strategy broadcast the initial value of each variable that is made under it.
    """

    def __init__(self, shape: tf.TensorShape) -> None:
        self._shape = shape

    def __call__(self) -> tf.Tensor:
        """Returns float32 zeros of the shape."""
        return tf.zeros(self._shape)


class CompressionState(tf.Module):
    """The residuals of a strategy, by variable.

    Trackable: `tf.train.Checkpoint(model=model, compression=strategy.compression_state)`
    saves the sum of a variable's residuals over the replicas, which is the gradient that has
    not been applied yet, and restoring gives each replica an equal part of it. (In
    TensorFlow's terms a residual is a variable with `ON_READ` synchronization and `SUM`
    aggregation.)

    A residual is made, with zeros, when a gradient of its variable is first reduced, and is
    released with its variable. A checkpoint may be restored before the first step: as for any
    Keras variable that does not exist yet, the values wait. At the first reduction after that, one
    line of the log says what became of them. A single replica adds its part to its first gradient.

    Attributes:
      in_use: whether gradients are compressed.
    """

    def __init__(self, in_use: bool = True) -> None:
        """Initializes the object.

        Args:
          in_use: whether gradients are compressed.
        """
        super().__init__(name="compression_state")
        self.in_use = in_use
        # A checkpoint holds the attributes of these modules, each by its key. A key is the
        # variable's name and, if that name occurs again, a number in the order of the first
        # reductions.
        self._residuals = tf.Module(name="residuals")
        self._warm_ups = tf.Module(name="warm_ups")
        self._trials = tf.Module(name="trials")
        self._key_of = _KeyOf()
        self._saved_keys = _SavedKeys(self)
        self._latest = Restore(frozenset(), frozenset())
        # Whether `reset` came after a restore, whose values may still wait for their variables.
        self._drops_waiting = False
        # Whether a function was built that does not add what a later restore brings.
        self._adds_nothing = False

    def residuals_of(self, variable: tf.Variable) -> Sequence[tf.Variable]:
        """Returns the float32 residuals of a distributed variable, one for each local replica.

        Args:
          variable: the distributed variable whose gradient is reduced.

        Returns:
          Variables of its shape, in the order of the local replicas, each on its device.
        """
        return self._residual_of(variable).values

    def warm_up_of(self, variable: tf.Variable) -> Any:
        """Returns the state of a warm-up, a mirrored float32 variable of shape [warm_up.SIZE].

        The first call makes that variable.

        Args:
          variable: the first of the distributed variables whose gradients are reduced together.
        """
        return self._mirrored(self._warm_ups, variable, "warm_up", warm_up.SIZE)

    def trial_of(self, variable: tf.Variable) -> Any:
        """Returns the state of a trial (`tf_gc.trial`), a mirrored float32 [trial.SIZE].

        The first call makes that variable, as `warm_up_of` does.

        Args:
          variable: the first of the distributed variables whose gradients are reduced together.
        """
        return self._mirrored(self._trials, variable, "trial", trial.SIZE)

    def warm_up_of_one(self, variables: Sequence[tf.Variable]) -> Any:
        """Returns the warm-up of variables whose gradients are reduced together.

        It is that of the first variable. But a checkpoint may be from a program that compressed
        other variables, so that another one has the restored warm-up; then it is that one's.

        Args:
          variables: distributed variables, first those that are compressed.
        """
        first = variables[0]
        if not self.has_warm_up(first):
            restored = [v for v in variables if self._key(v) in self._latest.warm_ups]
            if restored:
                first = restored[0]
            elif self._latest.keys and self._key(first) not in self._latest.keys:
                logging.warning(
                    "tf_gc: the warm-up begins anew, that of the checkpoint is of other variables"
                )
        return self.warm_up_of(first)

    def restore_warm_up(self, variable: tf.Variable, value: npt.NDArray[Any]) -> None:
        """Sets the state of a warm-up from a backup, `warm_up_of` a variable."""
        self.warm_up_of(variable).assign(value)
        self._latest.warm_ups |= {self._key(variable)}

    def has_warm_up(self, variable: tf.Variable) -> bool:
        """Whether `warm_up_of` was called for a variable."""
        return self._has(self._warm_ups, variable)

    def has_trial(self, variable: tf.Variable) -> bool:
        """Whether `trial_of` was called for a variable."""
        return self._has(self._trials, variable)

    @property
    def warm_up_steps(self) -> int:
        """How many steps were in full precision (`TwoBit.warm_up`); of several models, the most."""
        return max((int(warm_up.steps(state)) for state in self._warm_ups.variables), default=0)

    def total(self, variable: tf.Variable) -> npt.NDArray[np.float32] | None:
        """Returns the sum of a variable's residuals over all replicas, of its shape.

        Under a strategy of several workers this is a collective: all workers have to call it, for
        the same variables in the same order.

        Args:
          variable: a distributed variable.

        Returns:
          The sum, or `None` if the variable has no residuals.
        """
        key = self._key_of.by_id.get(id(variable))
        return None if key is None else getattr(self._residuals, key).numpy()

    def set_total(self, variable: tf.Variable, total: npt.NDArray[Any]) -> None:
        """Gives each replica an equal part of `total`, so that their residuals sum up to it.

        Args:
          variable: a distributed variable.
          total: float32 of its shape, the same on all workers.
        """
        self._residual_of(variable).assign(total)

    def add_restored(self, gradients: tuple[Any, ...], variable: tf.Variable) -> tuple[Any, ...]:
        """Adds, once, the restored residuals of a variable to gradients that are not compressed.

        A single replica sends nothing, and a gradient may be compressed no more, so nothing else
        ever uses these residuals. Where gradient plus residual is not finite, the residual stays
        as it is, as under compression.

        Args:
          gradients: one for each local replica, of the shape of the variable; sparse ones are left
            alone.
          variable: the distributed variable.

        Returns:
          The sums, in the gradients' dtype; `gradients` itself if nothing was restored.
        """
        known = id(variable) in self._key_of.by_id
        if not (known or self._new_key(variable.name) in self._latest.keys):
            self._adds_nothing |= not tf.executing_eagerly()
            return gradients
        if not self.in_use or not all(isinstance(gradient, tf.Tensor) for gradient in gradients):
            return gradients
        return self.emptied_into(gradients, variable)

    def emptied_into(self, gradients: Sequence[Any], variable: tf.Variable) -> tuple[Any, ...]:
        """Returns gradients plus their residuals, and sets these to zero where that is finite.

        Args:
          gradients: one for each local replica, of the shape of the variable.
          variable: the distributed variable.
        """
        return tuple(map(_emptied_into, gradients, self.residuals_of(variable)))

    def say_what_was_restored(self) -> None:
        """Logs which residuals were restored: once after a restore, or once at the start."""
        if not self._latest.said:
            self._latest.say(self._keys())

    def reset(self) -> None:
        """Starts anew: drops what has not been sent yet, and begins the warm-up again."""
        for variable in self.variables:
            _set_to_zero(variable)
        self._latest = Restore(frozenset(), frozenset())
        self._drops_waiting = True

    def __len__(self) -> int:
        return len(self._residuals.variables)

    def _residual_of(self, variable: tf.Variable) -> Any:
        # No other variable can have this id while its entry exists: the entry is removed together
        # with its variable. The lock is for models that are traced in two threads, where two
        # variables of one name must not get the same key.
        with self._key_of.lock:
            key = self._key_of.by_id.get(id(variable))
            return getattr(self._residuals, key or self._create(variable))

    def _mirrored(self, module: tf.Module, variable: tf.Variable, what: str, size: int) -> Any:
        """Returns a state that all replicas have alike, float32 [size], zeros at first."""
        self._residual_of(variable)
        key = self._key_of.by_id[id(variable)]
        with self._key_of.lock:
            if not hasattr(module, key):
                with tf.init_scope(), variable.distribute_strategy.scope():
                    state = tf.Variable(
                        Zeros(tf.TensorShape([size])),
                        trainable=False,
                        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                        name=f"{key}.{what}",
                        **NOT_LIFTED,
                    )
                self._add(module, key, state)
            return getattr(module, key)

    def _has(self, module: tf.Module, variable: tf.Variable) -> bool:
        key = self._key_of.by_id.get(id(variable))
        return key is not None and hasattr(module, key)

    def _create(self, variable: tf.Variable) -> str:
        key = self._new_key(variable.name)
        with tf.init_scope(), variable.distribute_strategy.scope():
            residual = tf.Variable(
                Zeros(variable.shape),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
                name=key,
                **NOT_LIFTED,
            )
        self._add(self._residuals, key, residual)
        self._key_of.by_id[id(variable)] = key
        weakref.finalize(variable, _release, weakref.ref(self), id(variable)).atexit = False
        return key

    def _add(self, module: tf.Module, key: str, variable: tf.Variable) -> None:
        setattr(module, key, variable)  # which restores what a checkpoint has for it
        if self._drops_waiting:
            with tf.init_scope():
                _set_to_zero(variable)

    def _keys(self) -> list[str]:
        return list(self._key_of.by_id.values())

    def _key(self, variable: tf.Variable) -> str:
        """Returns the key that a variable has, or would get."""
        return self._key_of.by_id.get(id(variable)) or self._new_key(variable.name)

    def _restored(self, keys: Any, warm_ups: Any, trials: Any) -> None:
        """Notes that a checkpoint is being restored: whose residuals and other states it has."""
        mine = self._keys()
        self._latest = Restore(frozenset(keys), frozenset(warm_ups))
        self._drops_waiting = False
        if not self.in_use:
            self._latest.drop()
            return
        # What the checkpoint lacks comes from steps that the restore undoes.
        for module, restored in (
            (self._residuals, keys),
            (self._warm_ups, warm_ups),
            (self._trials, trials),
        ):
            for key in set(mine) - set(restored):
                if hasattr(module, key):
                    _set_to_zero(getattr(module, key))
        if mine:
            self._latest.say(mine)
        if self._adds_nothing and set(keys) - set(mine):
            logging.warning(
                "tf_gc: residuals of variables that are not compressed now are added to their "
                "first gradients only in functions that are traced after the restore: restore "
                "before the first step"
            )

    def _new_key(self, name: str) -> str:
        # The suffix keeps the key apart from the attributes that a tf.Module has by itself.
        base = name.split(":")[0]
        key, number = f"{base}.residual", 0
        while hasattr(self._residuals, key):
            number += 1
            key = f"{base}.residual_{number}"
        return key


def _set_to_zero(variable: Any) -> None:
    """Sets a distributed variable to zero on all replicas of this host."""
    for component in variable.values:
        component.assign(tf.zeros_like(component))


def _emptied_into(gradient: tf.Tensor, residual: tf.Variable) -> tf.Tensor:
    """Returns gradient plus residual, and sets the residual to zero where that is finite."""
    with tf.device(residual.device):
        waiting = residual.read_value()
        dtype = tf.float64 if gradient.dtype == tf.float64 else tf.float32
        total = tf.cast(gradient, dtype) + tf.cast(waiting, dtype)
        residual.assign(tf.where(tf.math.is_finite(total), tf.zeros_like(waiting), waiting))
        return tf.cast(total, gradient.dtype)


class _SavedKeys(tf.train.experimental.PythonState):
    """Saves the keys of the residuals in a checkpoint, and notices when one is restored."""

    def __init__(self, state: CompressionState) -> None:
        self._state = weakref.ref(state)

    def serialize(self) -> str:
        state = self._state()
        if state is None:
            return json.dumps([])
        keys = state._keys()
        warm_ups = [key for key in keys if hasattr(state._warm_ups, key)]
        trials = [key for key in keys if hasattr(state._trials, key)]
        return json.dumps({"residuals": keys, "warm_ups": warm_ups, "trials": trials})

    def deserialize(self, string_value: str | bytes) -> None:
        state = self._state()
        if state is not None:
            saved = json.loads(string_value)
            if isinstance(saved, list):  # by an earlier version
                saved = {"residuals": saved}
            state._restored(
                saved["residuals"], saved.get("warm_ups", []), saved.get("trials", state._keys())
            )


class _KeyOf:
    """The keys of living variables. Variables have no hash, so their identity finds the key.

    (This is an object because a `tf.Module` would try to save a dict.)

    Attributes:
      by_id: the key of each variable, by its `id()`.
      lock: held while a variable's key is looked up or made.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, str] = {}
        self.lock = threading.Lock()


def _release(state: "weakref.ref[CompressionState]", variable_id: int) -> None:
    alive = state()
    if alive is not None:
        key = alive._key_of.by_id.pop(variable_id)
        delattr(alive._residuals, key)
        for module in (alive._warm_ups, alive._trials):
            if hasattr(module, key):
                delattr(module, key)
