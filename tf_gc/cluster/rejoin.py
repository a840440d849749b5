"""Joining a cluster again to make another strategy, where collectives fail.

After a collective has failed, TensorFlow refuses all others in that process until it joins its
cluster again. To join makes it forget the groups of collectives that other workers have asked it
for, and they would wait for ever. So workers do it all at once, and only where one of them has to.
They tell each other by TensorFlow's coordination service, which goes on working.
"""

import itertools
import time
from collections.abc import Callable

import tensorflow as tf

from tf_gc import _compat
from tf_gc.cluster.cluster import Resolver, tasks_of

_HOUR = 3600.0
_PATIENCE = 10.0  # seconds after which a worker that was not answered asks again
_PAUSE = 0.2  # seconds until a worker whose collective has failed asks again
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
    limit = timeout_seconds or _HOUR
    number = 1 + tasks.index((resolver.task_type, resolver.task_id))
    service = _compat.context().coordination_service
    if service is None or not service.service_type:
        _meet_by_collective(len(tasks), initialize, limit)
        return
    try:
        _gather(1, number, seconds=0)  # of this worker alone
        state = "works"
    except tf.errors.OpError:
        state = "aborted"
    joins = "aborted" in _meet(state, tasks, number, limit)
    initialize(joins)
    if joins:
        _meet("joined", tasks, number, limit)


def _meet(text: str, tasks: list[tuple[str, int]], number: int, limit: float) -> set[str]:
    """Returns the texts of all workers, which they tell each other by no collective."""
    context, meeting = _compat.context(), f"tf_gc/{next(_meetings)}"
    keys = [f"{meeting}/{job}/{index}" for job, index in tasks]
    try:
        context.set_config_key_value(keys[number - 1], text)
        context.wait_at_barrier(meeting, int(limit * 1000))
        if number == 1:  # it has the service, which all would ask about all
            texts = {context.get_config_key_value(key) for key in keys}
            context.set_config_key_value(f"{meeting}/all", " ".join(texts))
        return {*context.get_config_key_value(f"{meeting}/all").split()}
    except tf.errors.DeadlineExceededError:
        raise
    except tf.errors.OpError as error:
        raise RuntimeError(
            "a worker of this job has ended or cannot be reached, so no further strategy can be "
            f"made: start all workers again. {error.message}"
        ) from error


def _meet_by_collective(workers: int, initialize: Callable[[bool], None], limit: float) -> None:
    """Initializes, and joins again wherever collectives fail until all workers have met in one.

    A worker that has to join again lets nobody into a group before, and joining forgets at most who
    asked. So all ask, under the same key, until nobody fails or waits too long.
    """
    key, end, joins = 1 + workers + next(_meetings), time.monotonic() + limit, False
    while True:
        try:
            initialize(joins)
            return _gather(workers, key, min(_PATIENCE, limit))
        except tf.errors.OpError:
            if time.monotonic() > end:
                raise
            joins = True
            time.sleep(_PAUSE)


def _gather(size: int, key: int, seconds: float) -> None:
    """Waits for the workers of a group. The keys of strategies are positive."""
    tensor = tf.zeros([1])
    with tf.device("CPU:0"):
        tf.raw_ops.CollectiveGatherV2(
            input=tensor,
            group_size=size,
            group_key=-key,
            instance_key=-key,
            ordering_token=[],
            timeout_seconds=seconds,
        )
