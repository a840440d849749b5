"""Which gradients travel together."""

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tf_gc
from tf_gc.reduction.buckets import Bucket, group

F32, F16 = tf.float32, tf.float16
ALL = tf_gc.TwoBit(warm_up=False, bypass_size=0)


def test_buckets_follow_backpropagation() -> None:
    grouping = group(ALL, [(F32, 10)] * 4, bucket_bytes=80)
    assert [bucket.indices for bucket in grouping.buckets] == [(3, 2), (1, 0)]


def test_a_bucket_has_one_dtype() -> None:
    grouping = group(ALL, [(F32, 4), (F16, 4), (F32, 4)], bucket_bytes=1 << 20)
    assert set(grouping.buckets) == {Bucket((2, 0), F32), Bucket((1,), F16)}


def test_what_cannot_be_compressed_is_bypassed() -> None:
    grouping = group(
        tf_gc.TwoBit(warm_up=False, bypass_size=8), [None, (F32, 7), (tf.float64, 8), (F32, 8)]
    )
    assert grouping.bypass == (0, 1, 2)
    assert [bucket.indices for bucket in grouping.buckets] == [(3,)]


def test_without_compression_everything_is_bypassed() -> None:
    assert group(tf_gc.NoCompression(), [(F32, 1 << 20)] * 3).bypass == (0, 1, 2)


@given(
    st.lists(st.none() | st.tuples(st.sampled_from([F32, F16, tf.float64]), st.integers(0, 999))),
    st.integers(1, 4000),
)
def test_every_gradient_is_in_one_place(gradients: list, bucket_bytes: int) -> None:
    grouping = group(tf_gc.TwoBit(warm_up=False, bypass_size=100), gradients, bucket_bytes)
    places = [i for bucket in grouping.buckets for i in bucket.indices] + list(grouping.bypass)
    assert sorted(places) == list(range(len(gradients)))


@given(st.lists(st.integers(1, 999)), st.integers(1, 4000))
def test_a_bucket_is_closed_when_it_is_full(sizes: list[int], bucket_bytes: int) -> None:
    grouping = group(ALL, [(F32, size) for size in sizes], bucket_bytes)
    totals = [sum(4 * sizes[i] for i in bucket.indices) for bucket in grouping.buckets]
    # What is left are one bucket of small gradients and one of others.
    assert sum(total < bucket_bytes for total in totals) <= 2
    for bucket in grouping.buckets:
        assert sum(4 * sizes[i] for i in bucket.indices[:-1]) < bucket_bytes


def test_a_gradient_that_fills_a_bucket_does_not_wait_for_others() -> None:
    grouping = group(ALL, [(F32, 5), (F32, 20), (F32, 5)], bucket_bytes=80)
    assert [bucket.indices for bucket in grouping.buckets] == [(1,), (2, 0)]


def test_small_gradients_travel_together() -> None:
    sizes = [200, 4, 200, 4, 1000, 8, 600]
    grouping = group(ALL, [(F32, size) for size in sizes], bucket_bytes=4000)
    assert [bucket.indices for bucket in grouping.buckets] == [(4,), (6, 2, 0), (5, 3, 1)]
