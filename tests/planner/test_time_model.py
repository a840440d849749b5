"""The arithmetic of the planner's model of a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_gc.planner.time_model import Compute, Link, step_seconds

seconds = st.floats(0, 10)
sizes = st.floats(0, 1e10)
rates = st.floats(1e6, 1e12)
links = st.builds(Link, st.integers(1, 2000), rates, seconds, seconds, st.floats(0, 1e-6))
computes = st.builds(Compute, seconds, seconds, seconds)
slowdowns = st.floats(1, 2)

NEARLY = 1 + 1e-9


@given(rates, sizes)
def test_one_worker_sends_nothing(rate: float, size: float) -> None:
    link = Link(1, rate)
    assert link.all_reduce(size) == link.all_gather(size) == 0


@given(links, sizes, sizes)
def test_more_bytes_take_longer(link: Link, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert link.all_reduce(less) <= link.all_reduce(more)
    assert link.all_gather(less) <= link.all_gather(more)


@given(st.integers(1, 2000), rates, rates, sizes)
def test_faster_links_take_less(workers: int, one: float, other: float, size: float) -> None:
    slow, fast = (Link(workers, rate) for rate in sorted((one, other)))
    assert fast.all_reduce(size) <= slow.all_reduce(size)
    assert fast.all_gather(size) <= slow.all_gather(size)


@given(st.integers(1, 2000), rates, sizes)
def test_more_workers_take_longer(workers: int, rate: float, size: float) -> None:
    fewer, more = Link(workers, rate), Link(workers + 1, rate)
    assert fewer.all_reduce(size) <= more.all_reduce(size) * NEARLY
    assert fewer.all_gather(size) <= more.all_gather(size) * NEARLY


def test_collectives_are_those_of_the_alpha_beta_model() -> None:
    payload = 1538 / 1448  # so that the link carries 1 GB of payload a second
    link = Link(4, 8e9 * payload, launch=0, latency=1, byte=0)
    # 2 alpha (p - 1) + 2 b (p - 1) / (p BW), and alpha (p - 1) + m (p - 1) / BW.
    assert link.all_reduce(4e9) == pytest.approx(6 + 6)
    assert link.all_gather(4e9) == pytest.approx(3 + 12)
    assert Link(4, 8e9 * payload, 0, 0, byte=1e-9).all_gather(1e9) == pytest.approx(2 * 3)
    assert Link(4, 1e9, 5, 0, 0).seconds(0, rounds=3, collectives=2) == 10


@given(st.floats(0.1, 1), st.integers(2, 50), st.floats(0, 1), slowdowns)
def test_equal_buckets_take_what_the_paper_says(
    backward: float, buckets: int, network: float, slowdown: float
) -> None:
    expected = max(slowdown * backward, (buckets - 1) * network) + network
    early = (buckets - 1) * network
    step = step_seconds(Compute(0, backward, 0), early, network, slowdown=slowdown)
    assert step == pytest.approx(expected if network else backward)


@given(computes, seconds, seconds, seconds, slowdowns)
def test_a_step_is_between_all_at_once_and_one_after_another(
    compute: Compute, early: float, late: float, work: float, slowdown: float
) -> None:
    step = step_seconds(compute, early, late, work, slowdown)
    assert step * NEARLY >= max(compute.total + work, early) + late
    assert step <= (slowdown * compute.total + work + early + late) * NEARLY


@given(computes, seconds, seconds)
def test_late_transfers_overlap_with_nothing(compute: Compute, late: float, work: float) -> None:
    step = step_seconds(compute, 0, late, work, slowdown=2)
    assert step == pytest.approx(compute.total + work + late)
