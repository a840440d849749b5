"""The schedule: which gradients travel together, by which codec and plan."""

import dataclasses

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tf_gc
from tf_gc.network.group import LocalNetwork
from tf_gc.params import CompressionParams, Gradient
from tf_gc.reducers.reducer import Reducer, Spec
from tf_gc.schedule import Schedule, make_schedule

F32, F16 = tf.float32, tf.float16
ALL = tf_gc.TwoBit(warm_up=False, bypass_size=0)


def senders(params: CompressionParams, kind: str) -> dict[Spec, Reducer | str]:
    network = LocalNetwork([f"/device:{kind}:0", f"/device:{kind}:1"])
    return {spec: spec.on(network) for spec in params.specs()}


def schedule_of(
    params: CompressionParams, gradients: list[tuple[tf.DType, int] | None], bucket_bytes: int = 0
) -> Schedule:
    known = [one and Gradient(f"v{i}", one[0], (one[1],)) for i, one in enumerate(gradients)]
    return make_schedule(params, known, senders(params, "CPU"), bucket_bytes)


def places(schedule: Schedule) -> list[tuple[int, ...]]:
    return [bucket.indices for bucket in schedule.buckets]


def test_buckets_follow_backpropagation() -> None:
    schedule = schedule_of(ALL, [(F32, 10)] * 4, bucket_bytes=80)
    assert places(schedule) == [(3, 2), (1, 0)]
    assert schedule.compressed == [3, 2, 1, 0]


def test_a_bucket_has_one_dtype() -> None:
    schedule = schedule_of(ALL, [(F32, 4), (F16, 4), (F32, 4)], bucket_bytes=1 << 20)
    found = {(bucket.indices, bucket.dtype) for bucket in schedule.buckets}
    assert found == {((2, 0), F32), ((1,), F16)}


def test_a_warm_up_lasts_until_a_step_was_compressed() -> None:
    for params, expected in ((ALL, [False] * 3), (tf_gc.TwoBit(), [True, True, False])):
        schedule = schedule_of(params, [(F32, 4000)])
        known = (None, (3, 0), (12, 1))  # steps in full precision and compressed
        lasts = [dataclasses.replace(schedule, steps=steps).in_warm_up for steps in known]
        assert lasts == expected


def test_rows_are_compressed_as_the_params_say_of_rows() -> None:
    table = Gradient("table", F32, (500, 8), sparse=True)
    for sparse in (False, True):
        params = tf_gc.Quantized(sparse=sparse)
        assert bool(make_schedule(params, [table], senders(params, "CPU")).buckets) == sparse


def test_what_cannot_be_compressed_is_bypassed() -> None:
    params = tf_gc.TwoBit(warm_up=False, bypass_size=8)
    schedule = schedule_of(params, [None, (F32, 7), (tf.float64, 8), (F32, 8)])
    assert schedule.bypass == (0, 1, 2)
    assert places(schedule) == [(3,)]
    assert schedule_of(tf_gc.NoCompression(), [(F32, 1 << 20)] * 3).bypass == (0, 1, 2)


@given(
    st.lists(st.none() | st.tuples(st.sampled_from([F32, F16, tf.float64]), st.integers(0, 999))),
    st.integers(1, 4000),
)
def test_every_gradient_is_in_one_place(gradients: list, bucket_bytes: int) -> None:
    params = tf_gc.TwoBit(warm_up=False, bypass_size=100)
    schedule = schedule_of(params, gradients, bucket_bytes)
    assert sorted([*schedule.compressed, *schedule.bypass]) == list(range(len(gradients)))


@given(st.lists(st.integers(1, 999)), st.integers(1, 4000))
def test_a_bucket_is_closed_when_it_is_full(sizes: list[int], bucket_bytes: int) -> None:
    schedule = schedule_of(ALL, [(F32, size) for size in sizes], bucket_bytes)
    totals = [4 * bucket.elements for bucket in schedule.buckets]
    # Except for one bucket of small gradients and one of others.
    assert sum(total < bucket_bytes for total in totals) <= 2
    for bucket in schedule.buckets:
        assert bucket.elements == sum(sizes[i] for i in bucket.indices)
        assert sum(4 * sizes[i] for i in bucket.indices[:-1]) < bucket_bytes


def test_a_gradient_that_fills_a_bucket_is_alone_and_small_ones_travel_together() -> None:
    sizes = [200, 4, 200, 4, 1000, 8, 600]
    schedule = schedule_of(ALL, [(F32, size) for size in sizes], bucket_bytes=4000)
    assert places(schedule) == [(4,), (6, 2, 0), (5, 3, 1)]


def test_each_bucket_may_have_a_codec_and_a_plan_of_its_own() -> None:
    params = tf_gc.ByVariable(
        {"v[02]": tf_gc.TwoBit(0.5, plan="scatter_gather")}, tf_gc.OneBit(bypass_size=0)
    )
    schedule = schedule_of(params, [(F32, 10)] * 4)
    assert places(schedule) == [(3, 1), (2, 0)]
    assert [str(bucket.reducer) for bucket in schedule.buckets] == [
        "1 bit, all_gather, packed",
        "2 bits (threshold 0.5), scatter_gather, packed",
    ]


def test_a_schedule_can_be_printed() -> None:
    gradients = [None, (F32, 3000), (F16, 5000), (F32, 2), (tf.float64, 3000), (F32, 3)]
    schedule = schedule_of(tf_gc.TwoBit(), gradients)
    assert repr(schedule) == str(schedule)  # notebooks show that
    assert str(schedule).splitlines() == [
        "bucket 0: 5,000 elements of float16 by 2 bits, all_gather, packed: v2",
        "bucket 1: 3,000 elements of float32 by 2 bits, all_gather, packed: v1",
        "in full precision: 4 gradients",
        "  2 have fewer elements than bypass_size=2048, too few to matter (v3, v5)",
        "  1 have dtype float64: TwoBit compresses float32, float16, bfloat16, so use float32 (v4)",
        "the first steps are in full precision",
    ]


def test_a_gpu_leaves_rows_alone_unless_it_is_asked() -> None:
    table = Gradient("table", F32, (1 << 12, 64), sparse=True)
    asked, params = tf_gc.Quantized(sparse=True), tf_gc.Quantized()
    assert places(make_schedule(asked, [table], senders(asked, "GPU"))) == [(0,)]
    schedule = make_schedule(params, [table], senders(params, "GPU"))
    assert schedule.bypass == (0,)
    said = "1 are sparse (tf.IndexedSlices), which GPUs compress with sparse=True only (table)"
    assert said in str(schedule)
