"""The compression state of a strategy: residuals, factors, and how far warm-ups and trials are."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc.state import residuals
from tf_gc.state.layout import Entry
from tf_gc.state.registry import Slot, StateRegistry
from tf_gc.state.stream import Stream, named_stream
from tf_gc.steps import warm_up

NOTHING_COMPRESSED = "variables dropped, nothing is compressed now"
_GIVE_NAMES = "Keras numbers models and layers without a name: give them names"


class CompressionState(StateRegistry):
    """The residuals of a strategy, by stream of gradients and variable.

    A stream is an optimizer, or a call of `tf_gc.all_reduce_gradients`. All that it has begins with
    zeros when its gradients are first reduced, and ends with the optimizer or the variable.

    `tf.train.Checkpoint(model=model, compression=strategy.compression_state)` saves the sum of the
    residuals over the replicas, which is the gradient that has not been applied yet. Restored, also
    before the first step, each replica has an equal part of it; a single one adds it to its first
    gradient. One line of the log says what became of the values.
    """

    def __init__(self, in_use: bool = True) -> None:
        super().__init__()
        self.in_use = in_use  # whether gradients are compressed
        self._logged = False
        self._adds_nothing = False  # whether a function does not add what a later restore brings

    def residuals_of(
        self,
        variable: tf.Variable,
        stream: Stream | None = None,
        dtype: tf.DType = tf.float32,
    ) -> Sequence[tf.Variable]:
        """Returns the residuals of a distributed variable, of its shape, by local replica.

        Without a stream, they are of the first that has any, else of loops without a name. They
        are of `dtype` or a wider one. In int8 they are vectors (`tf_gc.state.stored`).
        """
        kept = [entry.value for entry in self.entries(variable, residuals.SLOT)]
        if stream is not None or not kept:
            slot = residuals.slot_of(dtype)
            kept = [self.value(slot, stream or named_stream(""), variable)]
        return kept[0].values

    def of_first(self, slot: Slot, stream: Stream, variables: Sequence[tf.Variable]) -> Any:
        """Returns a state of variables whose gradients are reduced together, a mirrored variable.

        It belongs to the first, unless a checkpoint of a program that compressed others has it for
        another one.
        """
        owners = [variable for variable in variables if self.has(slot, stream, variable)]
        waits = any(entry.slot == slot.name for entry in self.waiting)
        if not owners and waits and all(name != slot.name for name, _ in self.restored):
            name = slot.name.replace("_", "-")
            logging.warning(
                "tf_gc: the %s starts again: the restored one is for other variables", name
            )
        return self.value(slot, stream, [*owners, *variables][0])

    def add_restored(
        self, stream: Stream, gradients: tuple[Any, ...], variable: tf.Variable
    ) -> tuple[Any, ...]:
        """Adds, once, what was restored to gradients that are not compressed, or returns them."""
        has = self.has(residuals.SLOT, stream, variable)
        self._adds_nothing |= not has and not tf.executing_eagerly()
        if not has or not self.in_use:
            return gradients
        return residuals.emptied_into(gradients, self.residuals_of(variable, stream))

    @property
    def warm_up_steps(self) -> int:
        """How many steps were in full precision (`TwoBit.warm_up`), at most for any stream."""
        states = [entry.value for entry in self.entries(slot=warm_up.SLOT)]
        return max((int(warm_up.steps(state)) for state in states), default=0)

    def total(self, variable: tf.Variable) -> npt.NDArray[np.float32] | None:
        """Returns the sum of a variable's residuals over all replicas and streams, if any.

        With several workers this is a collective: all call it for the same variables in one order.
        """
        mine = residuals.SLOT.name, self.key(variable)
        with self._lock:
            kept = [*self.entries(), *self.waiting]
        parts = [e.numpy() for e in kept if (e.slot, e.key.of(None)) == mine]
        return sum(parts[1:], start=parts[0]) if parts else None

    def residual_owners(self) -> list[str]:
        """Returns the names of all residuals, each a variable and its stream."""
        return [str(entry.key) for entry in self.entries(slot=residuals.SLOT)]

    def __len__(self) -> int:
        return len(self.entries(slot=residuals.SLOT))

    def reset(self) -> None:
        """Starts anew: drops what has not been sent yet, and begins the warm-up again."""
        super().reset()
        self._logged = False

    def restore(self, saved: Sequence[Entry]) -> None:
        if not self.in_use:
            self.reset()
            self._logged = True
            if count := sum(entry.slot == residuals.SLOT.name for entry in saved):
                logging.warning("tf_gc: residuals of %d %s", count, NOTHING_COMPRESSED)
            return
        super().restore(saved)
        if len(self):
            self.log_what_was_restored()
        if self._adds_nothing and self.waiting:
            logging.warning(
                "tf_gc: residuals of variables that are not compressed now are added to their "
                "first gradients only in functions that are traced after the restore: restore "
                "before the first step"
            )

    def log_what_was_restored(self) -> None:
        """Logs which residuals were restored: once after a restore, or once at the start."""
        if self._logged:
            return
        self._logged = True
        mine, name = self.residual_owners(), residuals.SLOT.name
        restored = {str(key): fits for (slot, key), fits in self.restored.items() if slot == name}
        waiting = [str(entry.key) for entry in self.waiting if entry.slot == name]
        if not restored and not waiting:
            if mine:
                logging.info("tf_gc: residuals of all %d variables start at zero", len(mine))
            return
        misfits = [each for each, fits in restored.items() if not fits]
        new = set(mine) - set(restored)
        said = [
            f"residuals of {sum(restored.values())} variables restored",
            describe_residuals(waiting, "not used so far"),
            describe_residuals(misfits, "start at zero, because their shape has changed"),
            describe_residuals(new, "start at zero"),
            _GIVE_NAMES if waiting and new else "",
        ]
        level = logging.WARNING if any(said[1:]) else logging.INFO
        logging.log(level, "tf_gc: %s", "; ".join(filter(None, said)))


def describe_residuals(names: Collection[str], what: str) -> str:
    """Returns a clause that says whose residuals they are, if any, and what became of them."""
    return f"residuals of {', '.join(sorted(names))} {what}" if names else ""
