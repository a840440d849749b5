"""How fast the workers of a job reach each other: a measurement before the first step."""

import time
from collections.abc import Callable

import tensorflow as tf

# The bytes that a worker sends to each other one. Links that are shaped by a token bucket, as in
# many virtual machines, let the first bytes pass faster, and so the large message decides.
_SMALL, _LARGE = 1 << 18, 1 << 20
# How often the large message is sent. The fastest time counts: a worker may be busy with something
# else for a moment.
_TIMES = 3
# Seconds after which nothing more is sent. A slow link shows with few bytes.
_ENOUGH = 0.5


def bits_per_second(all_gather: Callable[[tf.Tensor], tf.Tensor], workers: int) -> float:
    """Returns the rate at which the slowest worker sends, the same number on all workers.

    All of them, 2 or more, call it. `all_gather` takes this worker's int64 tensor [1, n] and
    returns [workers, n]. It takes half a second, or longer if 1 MB to each of the other workers
    does.
    """

    def slowest(nanoseconds: int) -> float:
        return int(tf.reduce_max(all_gather(tf.constant([[nanoseconds]], tf.int64)))) / 1e9

    def seconds(size: int) -> float:
        message = tf.zeros([1, size // tf.int64.size], tf.int64)
        start = time.perf_counter_ns()
        int(all_gather(message)[-1, -1])  # waits until all is there
        return slowest(time.perf_counter_ns() - start)

    slowest(0)  # connects the workers, and lets them begin at the same time
    total = duration = seconds(_SMALL)
    size = _SMALL
    durations: list[float] = []
    while total < _ENOUGH and len(durations) < _TIMES:
        durations.append(seconds(_LARGE))
        total += durations[-1]
    if durations:
        size, duration = _LARGE, min(durations)
    return 8 * size * (workers - 1) / duration
