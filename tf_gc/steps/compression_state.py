"""The compression state of a strategy: residuals, factors, and how far warm-ups and trials are."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from tf_gc.reducers.factors import FACTORS
from tf_gc.state import residuals
from tf_gc.state.book import Saved
from tf_gc.state.seat import Slot
from tf_gc.state.store import Store
from tf_gc.state.stream import Stream, named_stream
from tf_gc.steps import trial, warm_up

NOTHING_COMPRESSED = "nothing is compressed now"


class CompressionState(Store):
    """The residuals of a strategy, by stream of gradients and variable.

    A stream is what gradients of one meaning come from: an optimizer, or a call of
    `tf_gc.all_reduce_gradients`. So what was not sent of one loss is never sent with the gradient
    of another. All that a stream has begins with zeros when its gradients are first reduced, and
    ends with the optimizer or the variable.

    Trackable: `tf.train.Checkpoint(model=model, compression=strategy.compression_state)`
    saves the sum of the residuals over the replicas, which is the gradient that has not been
    applied yet, and restoring gives each replica an equal part of it. A checkpoint may be restored
    before the first step: the values wait for their streams and variables. At the first reduction
    after that, one line of the log says what became of them. A single replica adds its part to its
    first gradient.

    Attributes:
      in_use: whether gradients are compressed.
    """

    def __init__(self, in_use: bool = True) -> None:
        """Initializes the object.

        Args:
          in_use: whether gradients are compressed.
        """
        super().__init__(
            (residuals.SLOT, warm_up.SLOT, trial.SLOT, Slot(FACTORS)), name="compression_state"
        )
        self.in_use = in_use
        self._logged = False
        # Whether a function was built that does not add what a later restore brings.
        self._adds_nothing = False

    def of(self, stream: Stream) -> "StreamState":
        """Returns what belongs to a stream."""
        return StreamState(self, stream)

    def residuals_of(self, variable: tf.Variable) -> Sequence[tf.Variable]:
        """Returns the float32 residuals of a distributed variable, one for each local replica.

        They are those of the first stream that has any; a loop's without a name if none has.

        Args:
          variable: the distributed variable whose gradient is reduced.

        Returns:
          Variables of its shape, in the order of the local replicas, each on its device.
        """
        for entry in self.entries(variable):
            if entry.slot == residuals.SLOT.name:
                return entry.value.values
        return self.of(named_stream("")).residuals_of(variable)

    @property
    def warm_up_steps(self) -> int:
        """How many steps were in full precision (`TwoBit.warm_up`), at most for any stream."""
        return max((int(warm_up.steps(state)) for state in self.values(warm_up.SLOT)), default=0)

    def total(self, variable: tf.Variable) -> npt.NDArray[np.float32] | None:
        """Returns the sum of a variable's residuals over all replicas and streams, of its shape.

        Under a strategy of several workers this is a collective: all workers have to call it, for
        the same variables in the same order.

        Args:
          variable: a distributed variable.

        Returns:
          The sum, or `None` if the variable has no residuals.
        """
        name = residuals.SLOT.name
        parts = [e.value.numpy() for e in self.entries(variable) if e.slot == name]
        waiting = [s.value for s in self.saved(variable) if s.slot == name and s.waits]
        parts += [value for value in waiting if value is not None]
        return sum(parts[1:], start=parts[0]) if parts else None

    def log_what_was_restored(self) -> None:
        """Logs which residuals were restored: once after a restore, or once at the start."""
        if not self._logged:
            self._log(self.residual_owners())

    def residual_owners(self) -> list[str]:
        """Returns the names of all residuals, each a variable and its stream."""
        return [str(e.owner) for e in self.entries() if e.slot == residuals.SLOT.name]

    def reset(self) -> None:
        """Starts anew: drops what has not been sent yet, and begins the warm-up again."""
        super().reset()
        self._logged = False

    def restore(self, saved: Sequence[Saved]) -> None:
        if not self.in_use:
            self.reset()
            self._logged = True
            count = sum(each.slot == residuals.SLOT.name for each in saved)
            if count:
                logging.warning(
                    f"tf_gc: residuals of {count} variables dropped, {NOTHING_COMPRESSED}"
                )
            return
        self._logged = False
        super().restore(saved)
        self._log_at_once()
        if self._adds_nothing and any(each.waits for each in saved):
            logging.warning(
                "tf_gc: residuals of variables that are not compressed now are added to their "
                "first gradients only in functions that are traced after the restore: restore "
                "before the first step"
            )

    def arrived(self, slot: str, key: str, value: npt.NDArray[Any]) -> None:
        super().arrived(slot, key, value)
        self._log_at_once()

    def __len__(self) -> int:
        return len(self.values(residuals.SLOT))

    def _log_at_once(self) -> None:
        """Logs what was restored if all of it is there, and the first step has been built."""
        mine = self.residual_owners()
        if not self._logged and mine and all(each.value is not None for each in self.saved()):
            self._log(mine)

    def _log(self, mine: Sequence[str]) -> None:
        """Logs what was restored, what waits, what does not fit, and what is new in `mine`."""
        self._logged = True
        saved = [each for each in self.saved() if each.slot == residuals.SLOT.name]
        if not saved and not mine:
            return
        if not saved:
            logging.info("tf_gc: residuals of all %d variables start at zero", len(mine))
            return
        used = [each for each in saved if each.entry is not None and each.fits]
        rest = []
        waiting = [str(each.owner) for each in saved if each.waits]
        if waiting:
            rest.append(describe_residuals(waiting, "not used so far"))
        if misfits := [str(each.entry.owner) for each in saved if each.entry and not each.fits]:
            rest.append(describe_residuals(misfits, "start at zero, for they had another shape"))
        restored = [str(each.entry.owner) for each in saved if each.entry is not None]
        if new := set(mine) - set(restored):
            rest.append(describe_residuals(new, "start at zero"))
        if waiting and new:
            rest.append("Keras numbers models and layers without a name: give them names")
        level = logging.WARNING if rest else logging.INFO
        logging.log(
            level, "tf_gc: %s", "; ".join([f"residuals of {len(used)} variables restored", *rest])
        )


class StreamState:
    """What belongs to a stream of gradients.

    Attributes:
      stream: that stream.
    """

    def __init__(self, state: CompressionState, stream: Stream) -> None:
        self._state = state
        self.stream = stream

    def residuals_of(self, variable: tf.Variable) -> Sequence[tf.Variable]:
        """Returns the float32 residuals of a distributed variable, one for each local replica."""
        return self._state.value(residuals.SLOT, self.stream, variable).values

    def shared_by_replicas(self, slot: Slot, variable: tf.Variable) -> Any:
        """Returns what a reducer keeps for a distributed variable, a mirrored variable."""
        return self._state.value(slot, self.stream, variable)

    def notes_of(self, variable: tf.Variable) -> dict[Any, Any]:
        """Returns what is remembered of a distributed variable but not saved."""
        return self._state.notes(self.stream, variable)

    def of_first(self, slot: Slot, variables: Sequence[tf.Variable]) -> Any:
        """Returns a state of variables whose gradients are reduced together, a mirrored variable.

        It is that of the first variable. But a checkpoint may be from a program that compressed
        other variables, so that another one has it; then it is that one's.

        Args:
          slot: which state.
          variables: distributed variables, first those that are compressed.
        """
        owners = [v for v in variables if self._state.has(slot, self.stream, v)]
        saved = [each for each in self._state.saved() if each.slot == slot.name]
        if not owners and saved and all(each.waits for each in saved):
            logging.warning(
                "tf_gc: the %s begins anew, that of the checkpoint is of other variables",
                slot.name.replace("_", "-"),
            )
        return self._state.value(slot, self.stream, [*owners, *variables][0])

    def add_restored(self, gradients: tuple[Any, ...], variable: tf.Variable) -> tuple[Any, ...]:
        """Adds, once, the restored residuals of a variable to gradients that are not compressed.

        A single replica sends nothing, and a gradient may be compressed no more, so nothing else
        ever uses these residuals. Where gradient plus residual is not finite, the residual stays
        as it is, as under compression.

        Args:
          gradients: one for each local replica, of the shape of the variable. A sparse one gets the
            residuals of its rows.
          variable: the distributed variable.

        Returns:
          The sums, in the gradients' dtype; `gradients` itself if nothing was restored.
        """
        state = self._state
        if not state.has(residuals.SLOT, self.stream, variable):
            state._adds_nothing |= not tf.executing_eagerly()
            return gradients
        if not state.in_use:
            return gradients
        return residuals.emptied_into(gradients, self.residuals_of(variable))


def describe_residuals(names: Iterable[str], what: str) -> str:
    """Returns a clause that says whose residuals they are, and what became of them."""
    return f"residuals of {', '.join(sorted(names))} {what}"
