"""Joining a cluster again to make another strategy, where collectives fail.

After a collective has failed, TensorFlow refuses all others in that process until it joins its
cluster again. To join makes it forget the groups of collectives that other workers have asked it
for, and they would wait for ever. So workers do it all at once, and only where one of them has to.
They tell each other by TensorFlow's coordination service, which goes on working.
"""

import itertools
from collections.abc import Callable

import tensorflow as tf

from tf_gc import _compat
from tf_gc.cluster.cluster import Resolver, tasks_of

_HOUR = 3600.0
_meetings = itertools.count()


def initialize_again(
    resolver: Resolver, initialize: Callable[[bool], None], timeout_seconds: float | None
) -> None:
    """Initializes a further strategy of a process; all workers have to call it.

    `initialize` takes whether to join the cluster again. `None` or 0 seconds wait for the others
    without a limit.

    Raises:
      tf.errors.DeadlineExceededError: if they do not come in time.
      RuntimeError: if one of them has ended.
    """
    tasks = sorted(task for task in tasks_of(resolver) if task[0] != "evaluator")
    mine, context = tasks.index((resolver.task_type, resolver.task_id)), _compat.context()

    def meet(text: str) -> set[str]:
        """Returns the texts of all workers."""
        meeting = next(_meetings)
        keys = [f"tf_gc/{meeting}/{job}/{index}" for job, index in tasks]
        try:
            context.set_config_key_value(keys[mine], text)
            context.wait_at_barrier(keys[0], int((timeout_seconds or _HOUR) * 1000))
            return {context.get_config_key_value(key) for key in keys}
        except tf.errors.DeadlineExceededError:
            raise
        except tf.errors.OpError as error:
            raise RuntimeError(
                "a worker of this job has ended or cannot be reached, so no further strategy can "
                f"be made: start all workers again. {error.message}"
            ) from error

    service = context.coordination_service
    if service is None or not service.service_type:  # which only private functions switch off
        initialize(False)
        return
    joins = "aborted" in meet("works" if _collectives_work(-1 - mine) else "aborted")
    initialize(joins)
    if joins:
        meet("joined")


def _collectives_work(key: int) -> bool:
    """Tries a collective of this worker alone. The keys of strategies are positive."""
    keys = {"group_size": 1, "group_key": key, "instance_key": key}
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.CollectiveGatherV2(input=tf.zeros([1]), **keys, ordering_token=[])
    except tf.errors.OpError:
        return False
    return True
