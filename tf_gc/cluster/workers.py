"""The workers of a job, as one of them sees them: who they are, and what they tell each other."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tf_gc.ops.library import compact_version, wire_version
from tf_gc.params import CompressionParams
from tf_gc.reducers.wire import WIRES

Numbers = npt.NDArray[np.int64]

# Workers that meet send a digest of what they do, and numbers, always in this size: TensorFlow's
# collectives fail, for good, where the workers' tensors differ in shape.
_DIGEST = 2
_NUMBERS = 2
# Bytes of the words that each worker sends if they differ; longer ones are cut.
_WORDS = 2048
_DIFFER = (
    "the workers of this job do different things; all of them have to run the same program with "
    "the same arguments"
)


class Workers:
    """The processes that run the same program as one job; a process alone is a job of one.

    `meet` and `largest` are collectives: each returns when all workers have called it, and all
    workers have to call them in the same order. Workers that come to different calls all raise.

    Attributes:
      count: how many workers there are.
      is_chief: whether this worker writes the job's files; it does so alone.
      is_evaluator: whether this process is alone and not the chief.
    """

    def __init__(
        self,
        count: int = 1,
        is_chief: bool = True,
        all_gather: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        """`all_gather` makes [count, n] of the int64 [1, n] of all workers, if there are others."""
        self.count = count
        self.is_chief = is_chief
        self.is_evaluator = count == 1 and not is_chief
        self._all_gather = all_gather

    def meet(self, doing: str, *numbers: int, details: str = "", error: str = _DIFFER) -> Numbers:
        """Waits for all workers, and returns the numbers that each of them passed, by rows.

        Args:
          doing: what this worker does, with everything that has to be the same on all workers.
          numbers: at most two; how many there are is the same wherever `doing` is.
          details: more for the error to say, which need not be the same.
          error: how the error begins.

        Raises:
          ValueError: on every worker, if they do different things; it says what each one does.
        """
        if (all_gather := self._all_gather) is None:
            return np.asarray([numbers], np.int64)
        digest = np.frombuffer(hashlib.sha256(doing.encode()).digest(), np.int64)[:_DIGEST]
        mine = [*digest, *numbers, *[0] * (_NUMBERS - len(numbers))]
        everyones: Numbers = all_gather(tf.constant([mine], tf.int64)).numpy()
        if len(np.unique(everyones[:, :_DIGEST], axis=0)) == 1:
            return everyones[:, _DIGEST : _DIGEST + len(numbers)]
        words = (doing + details).encode()[:_WORDS].ljust(_WORDS)
        rows = all_gather(tf.constant([np.frombuffer(words, np.int64)])).numpy()
        listing = "".join(
            f"\n  worker {i}: {row.tobytes().decode(errors='replace').strip()}"
            for i, row in enumerate(rows)
        )
        raise ValueError(f"{error}:{listing}")

    def largest(self, doing: str, *numbers: int) -> list[int]:
        """Meets, and returns for each of the numbers the largest one that any worker passed."""
        return [int(number) for number in self.meet(doing, *numbers).max(axis=0)]


def check_agreement(
    params: CompressionParams, arguments: Mapping[str, Any], workers: Workers
) -> None:
    """Checks that all workers will send the same kinds of messages and run the same collectives.

    All workers call it. `arguments` are what has to be the same beside the params, by the names
    that users know. If a worker differs from the others, there is a ValueError on all of them.
    """
    others = ", ".join(f"{name}={value}" for name, value in arguments.items())
    # The names tell from builds whose compact version had one more encoding.
    wire = f"wire version {wire_version()}, compact {compact_version()} of {WIRES}"
    workers.meet(
        f"{wire}, {others}, {params!r}",  # what may be cut comes last
        error="the workers of this job compress gradients in different ways; give all of them the "
        "same arguments of the strategy and the same version of tf_gc",
    )
