"""The workers of a job, as one of them sees them: who they are, and what they tell each other."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Numbers = npt.NDArray[np.int64]


class Workers:
    """The processes that run the same program as one job; a process alone is a job of one.

    `gather`, `agree`, `wait` and `largest` are collectives: each returns when all workers have
    called it, and all workers have to call them in the same order.

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

    def gather(self, numbers: Sequence[int] | Numbers) -> Numbers:
        """Returns the numbers that each worker passed, [count, numbers]; all pass equally many."""
        mine = np.asarray(numbers, np.int64)[None]
        if self._all_gather is None:
            return mine
        everyones: Numbers = self._all_gather(tf.constant(mine)).numpy()
        return everyones

    def agree(self, text: str) -> int:
        """Returns how many different texts the workers passed: 1 if they agree."""
        digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.int64)
        return len(np.unique(self.gather(digest), axis=0))

    def wait(self) -> None:
        """Waits until all workers have come here."""
        self.gather([0])

    def largest(self, *numbers: int) -> list[int]:
        """Returns, for each of the numbers, the largest one that any worker passed."""
        return [int(number) for number in self.gather(numbers).max(axis=0)]
