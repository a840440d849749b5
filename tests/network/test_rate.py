"""The rate between workers: the slowest one's, by a large message, soon."""

from collections.abc import Callable

import pytest
import tensorflow as tf

from tf_gc.network.cluster_network import bits_per_second


def workers_of(
    count: int, nanoseconds: Callable[[int], int]
) -> tuple[Callable[[tf.Tensor], tf.Tensor], list[int]]:
    """Returns an all-gather whose slowest worker says how long a message of some bytes took.

    The list gets the bytes of each message.
    """
    sizes: list[int] = []

    def all_gather(mine: tf.Tensor) -> tf.Tensor:
        assert mine.shape[0] == 1
        rows = tf.repeat(mine, count, axis=0)
        if mine.shape[1] > 1:
            sizes.append(8 * mine.shape[1])
        elif sizes:
            slowest = tf.constant([[nanoseconds(sizes[-1])]], tf.int64)
            rows = tf.concat([tf.zeros_like(rows[1:]), slowest], axis=0)
        return rows

    return all_gather, sizes


@pytest.mark.parametrize(
    ("count", "large"), [(2, 1 << 20), (3, 1 << 20), (16, 1 << 19), (99, 1 << 18)]
)
def test_the_slowest_worker_decides(count: int, large: int) -> None:
    all_gather, sizes = workers_of(count, lambda size: 10 * size)
    assert bits_per_second(all_gather, count) == pytest.approx(8e9 * (count - 1) / 10)
    assert sizes == [1 << 18, *[large] * 3]


def test_the_first_bytes_may_pass_faster_than_others() -> None:
    all_gather, _ = workers_of(2, lambda size: 1000 + 100 * max(0, size - (1 << 18)))
    assert bits_per_second(all_gather, 2) == pytest.approx(8e9 / 75, rel=0.01)


def test_a_worker_may_be_busy_for_a_moment() -> None:
    delays = iter([10**7, 10**8, 0, 10**7])
    all_gather, _ = workers_of(2, lambda size: 10 * size + next(delays))
    assert bits_per_second(all_gather, 2) == pytest.approx(8e8)


def test_over_slow_links_little_is_sent() -> None:
    for nanoseconds_a_byte, times in ((10_000, [1 << 18]), (1000, [1 << 18, 1 << 20])):
        all_gather, sizes = workers_of(2, lambda size, each=nanoseconds_a_byte: each * size)
        assert bits_per_second(all_gather, 2) == pytest.approx(8e9 / nanoseconds_a_byte)
        assert sizes == times
