"""The workers of a job, as one of them sees them: who they are, and what they tell each other."""

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Numbers = npt.NDArray[np.int64]

# What each worker sends when they meet: a digest of what it does, and numbers. It always has this
# size: TensorFlow's collectives fail, for good, where the workers' tensors differ in shape.
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
      is_evaluator: whether this process is alone beside the job, whose chief is another one.
    """

    def __init__(
        self,
        count: int = 1,
        is_chief: bool = True,
        all_gather: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        """Initializes the object; without arguments it is a job of one worker.

        Args:
          count: how many workers there are.
          is_chief: whether this worker is the chief. A process that is alone and not the chief
            is an evaluator.
          all_gather: takes this worker's int64 tensor [1, numbers] and returns the tensors of all
            workers, [count, numbers]. It may be `None` if this worker is alone.
        """
        if count > 1 and all_gather is None:
            raise ValueError(f"{count} workers need a way to gather what each of them says")
        self.count = count
        self.is_chief = is_chief
        self.is_evaluator = count == 1 and not is_chief
        self._all_gather = all_gather

    def meet(self, doing: str, *numbers: int, note: str = "", error: str = _DIFFER) -> Numbers:
        """Waits until all workers are here, and returns the numbers that each of them passed.

        Args:
          doing: what this worker does, with everything that has to be the same on all workers.
          numbers: at most two; how many there are is the same wherever `doing` is.
          note: more for the error to say, which need not be the same.
          error: how the error begins.

        Returns:
          Shape [count, numbers].

        Raises:
          ValueError: on every worker, if they do different things; it says what each one does.
        """
        if self._all_gather is None:
            return np.asarray([numbers], np.int64)
        digest = np.frombuffer(hashlib.sha256(doing.encode()).digest(), np.int64)[:_DIGEST]
        everyones = self._gather([*digest, *numbers, *[0] * (_NUMBERS - len(numbers))])
        if len(np.unique(everyones[:, :_DIGEST], axis=0)) == 1:
            return everyones[:, _DIGEST : _DIGEST + len(numbers)]
        words = (doing + note).encode()[:_WORDS].ljust(_WORDS)
        rows = self._gather(np.frombuffer(words, np.int64))
        listing = "".join(
            f"\n  worker {i}: {row.tobytes().decode(errors='replace').strip()}"
            for i, row in enumerate(rows)
        )
        raise ValueError(f"{error}:{listing}")

    def largest(self, doing: str, *numbers: int) -> list[int]:
        """Returns, for each of the numbers, the largest one that any worker passed.

        Args:
          doing: as in `meet`.
          numbers: as in `meet`.

        Raises:
          ValueError: as in `meet`.
        """
        return [int(number) for number in self.meet(doing, *numbers).max(axis=0)]

    def _gather(self, numbers: "list[int] | Numbers") -> Numbers:
        assert self._all_gather is not None
        everyones: Numbers = self._all_gather(tf.constant([numbers], tf.int64)).numpy()
        return everyones
