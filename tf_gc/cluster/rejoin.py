"""Whether the workers of a job have to join their cluster again to make another strategy.

After a collective has failed, TensorFlow refuses all others in that process until it joins its
cluster again. To join makes it forget the groups of collectives that other workers have asked it
for, and they would wait for ever. So workers do it all at once, and only where one of them has to.
They tell each other by TensorFlow's coordination service, which goes on working.
"""

import itertools

import tensorflow as tf

from tf_gc import _compat
from tf_gc.cluster.cluster import Resolver, tasks_of

_HOUR = 3600.0
_meetings = itertools.count()


def any_is_aborted(resolver: Resolver, timeout_seconds: float | None) -> bool:
    """Returns whether collectives fail on any worker; all of them have to call it.

    `None` or 0 seconds wait for the others without a limit.

    Raises:
      tf.errors.DeadlineExceededError: if they do not come in time.
      RuntimeError: if one of them has ended.
    """
    number = 1 + _tasks(resolver).index((resolver.task_type, resolver.task_id))
    try:
        # In a group of this worker alone. Strategies have positive keys.
        with tf.device("CPU:0"):
            tf.raw_ops.CollectiveGatherV2(
                input=tf.zeros([1]),
                group_size=1,
                group_key=-number,
                instance_key=-number,
                ordering_token=[],
            )
        aborted = False
    except tf.errors.OpError:
        aborted = True
    return "aborted" in meet("aborted" if aborted else "works", resolver, timeout_seconds)


def meet(text: str, resolver: Resolver, timeout_seconds: float | None) -> set[str]:
    """Returns the texts of all workers, which have to call it; see `any_is_aborted`."""
    meeting = next(_meetings)
    keys = {task: f"tf_gc/{meeting}/{task[0]}/{task[1]}" for task in _tasks(resolver)}
    mine = keys[resolver.task_type, resolver.task_id]
    try:
        return set(_compat.exchange([*keys.values()], mine, text, timeout_seconds or _HOUR))
    except tf.errors.DeadlineExceededError:
        raise
    except tf.errors.OpError as error:
        raise RuntimeError(
            "a worker of this job has ended or cannot be reached, so no further strategy can be "
            f"made: start all workers again. {error.message}"
        ) from error


def _tasks(resolver: Resolver) -> list[tuple[str, int]]:
    return sorted(task for task in tasks_of(resolver) if task[0] != "evaluator")
