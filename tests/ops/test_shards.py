"""The ops of the scatter-gather through TensorFlow, for each codec: shards, ledger, buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import cases, matrix
from tests.custom_ops import cases as codec_cases
from tests.custom_ops.cases import Message
from tests.ops.formats import (
    AUTO,
    BLOCK,
    DTYPES,
    FIXED,
    SHAPES,
    Format,
    Replica,
    copies_of,
    each_auto,
    each_dtype,
    each_format,
    exchange,
    flat,
    in_blocks,
    make_replica,
)
from tf_gc.ops import decode, decode_shards, encode, reencode

# ---- Encoding in shards ------------------------------------------------------------


@cases("shards", 3, 1, 2, 21, 22, 23, 50)
@each_format
def test_the_shards_are_the_blocks_of_the_bucket_in_order(form: Format, shards: int) -> None:
    gradients, residuals = make_replica()
    copies = copies_of(residuals)
    whole = encode(gradients, residuals, form.codec, form.threshold)
    rows = encode(gradients, copies, form.codec, form.threshold, shards).numpy()
    np.testing.assert_array_equal(in_blocks(residuals), in_blocks(copies))
    size = -(-22 // shards)
    assert rows.shape == (shards, form.words(size))
    assert (rows[:, 1] == size).all()
    np.testing.assert_array_equal(rows[:, 0], whole.numpy()[:, 0].repeat(shards))
    codes, scales, paddings = zip(*[form.parts(row, size) for row in rows], strict=True)
    all_codes, all_scales, _ = form.parts(whole, 22)
    for found, expected in ((codes, all_codes), (scales, all_scales)):
        joined = np.concatenate(found)
        np.testing.assert_array_equal(joined[: expected.size], expected)
        assert not joined[expected.size :].any()
    assert not np.concatenate(paddings).any()


@cases("skip", 1, 0, 3, 7)
@each_auto
def test_a_skipped_shard_sends_zeros_and_keeps_its_residuals(form: Format, skip: int) -> None:
    gradients, residuals = make_replica()
    copies = copies_of(residuals)
    before = in_blocks(residuals)
    full = encode(gradients, copies, form.codec, shards=8).numpy()
    rows = encode(gradients, residuals, form.codec, shards=8, skip=skip).numpy()

    assert not rows[skip, 2:].any()
    rows[skip, 2:] = full[skip, 2:]
    np.testing.assert_array_equal(rows, full)
    own = slice(skip * 3 * BLOCK, (skip + 1) * 3 * BLOCK)
    expected = in_blocks(copies)
    expected[own] = before[own]
    np.testing.assert_array_equal(in_blocks(residuals), expected)


@each_format
def test_a_bucket_of_empty_tensors_has_empty_shards(form: Format) -> None:
    replicas = [make_replica([(0,), (0, 3)], seed=seed) for seed in range(2)]
    rows = encode(*replicas[0], form.codec, form.threshold, shards=2)
    assert rows.shape == (2, 2)
    assert [total.shape for total in exchange(form, replicas)] == [(0,), (0, 3)]


@each_auto
def test_residuals_that_are_being_read_keep_what_is_not_encoded(form: Format) -> None:
    """The encode writes new buffers then, into which the other residuals have to come."""
    gradients, residuals = make_replica()
    copies = copies_of(residuals)
    message = encode(gradients, copies, form.codec, shards=4, skip=2)

    @tf.function
    def step() -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        first = [residual.read_value() for residual in residuals]
        rows = encode(gradients, residuals, form.codec, shards=4, skip=2)
        with tf.control_dependencies([rows]):
            second = [residual.read_value() for residual in residuals]
        with tf.control_dependencies(second):
            total = reencode([rows[:1]] * 4, gradients, residuals, 2, 4, codec=form.codec)
        with tf.control_dependencies([total]):
            old = [tf.identity(value) for value in first], [tf.identity(v) for v in second]
            return *old, [residual.read_value() for residual in residuals], total

    before = in_blocks(residuals)
    first, second, third, total = step()
    np.testing.assert_array_equal(in_blocks(first), before)
    np.testing.assert_array_equal(in_blocks(second), in_blocks(copies))
    expected = reencode([message[:1]] * 4, gradients, copies, 2, 4, codec=form.codec)
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(in_blocks(third), in_blocks(copies))
    assert (in_blocks(third) != in_blocks(second)).any()


# ---- Both stages -------------------------------------------------------------------


@each_dtype
@cases("shard", 2, 0, 3)
@each_auto
def test_reencode_adds_the_other_replicas_to_its_own_numbers(
    form: Format, dtype: Any, shard: int
) -> None:
    shards, size = 4, 6
    rows, sent = [], []
    for rank in range(shards):
        replica = make_replica(SHAPES, dtype, rank)
        rows.append(encode(*replica, form.codec, shards=shards)[shard : shard + 1])
        sent.append(form.parts(rows[-1], size))
    rows[shard] = tf.constant(-1, tf.int64, rows[shard].shape)  # not even a header
    del sent[shard]
    gradients, residuals = make_replica(SHAPES, dtype, 9)
    copies = copies_of(residuals)
    before = in_blocks(residuals)

    together = [tf.concat(rows[:3], axis=0), rows[3]]
    message = reencode(together, gradients, residuals, shard, shards, codec=form.codec)
    apart = reencode(rows, gradients, copies, shard, shards, codec=form.codec)
    np.testing.assert_array_equal(apart, message)
    np.testing.assert_array_equal(in_blocks(copies), in_blocks(residuals))

    own = slice(shard * size * BLOCK, (shard + 1) * size * BLOCK)
    elements = in_blocks([np.ones(shape, bool) for shape in SHAPES])[own]
    p = in_blocks(gradients)[own]
    used = p.size // BLOCK
    codes, scales, padding = form.parts(message, size)
    after = before.copy()
    # The zeros after the end of a tensor are no elements of its last block: block by block.
    for block in range(used):
        here = np.flatnonzero(elements[block * BLOCK : (block + 1) * BLOCK]) + block * BLOCK
        bytes_here = slice(block * form.code_bytes, (block + 1) * form.code_bytes)
        received = [Message(c[bytes_here], s[block : block + 1], before[:0]) for c, s, _ in sent]
        expected = codec_cases.oracle_reencode(form.native, received, p[here], before[own][here])
        np.testing.assert_array_equal(codes[bytes_here], expected.codes)
        assert scales[block] == expected.scales
        after[own.start + here] = expected.residual
    assert not codes[used * form.code_bytes :].any()
    assert not scales[used:].any()
    assert not padding.any()
    np.testing.assert_array_equal(in_blocks(residuals), after)


def expect_nothing_lost(form: Format, replicas: list[Replica], sum_form: Format | None) -> None:
    """What all decode, plus all residuals, is all gradients plus the residuals before.

    In one stage, or in two with sums of a form.
    """
    like = replicas[0][0]
    expected = [
        sum(g[i].numpy().astype(np.float64) + r[i].numpy() for g, r in replicas)
        for i in range(len(like))
    ]
    if sum_form is None:
        rows = tf.concat([encode(*one, form.codec, form.threshold) for one in replicas], axis=0)
        sums = decode(rows, like, form.codec, form.threshold)
    else:
        sums = exchange(form, replicas, sum_form)
    for i, total in enumerate(sums):
        assert total.dtype == like[i].dtype
        kept = sum(residuals[i].numpy().astype(np.float64) for _, residuals in replicas)
        ledger = total.numpy().astype(np.float64) + kept
        atol = tolerance(form, total.dtype, sum_form)
        np.testing.assert_allclose(ledger, expected[i], atol=atol)


def tolerance(form: Format, dtype: tf.DType, sum_form: Format | None) -> float:
    """Of a sum of float32; results of 16 bits round the sum itself."""
    if dtype == tf.float32:
        return 1e-4
    if form == sum_form == Format("two_bit", "auto"):
        # Then a sum is 0 or a scale, a bfloat16, which a float16 holds to rounding.
        return 1e-2 if dtype == tf.float16 else 1e-4
    return 5e-2 if form.codec == "one_bit" else 8e-2


def sums_of(form: Format) -> list[Format]:
    return [form, form.finer] if form.automatic else [form]


@settings(max_examples=40)
@given(
    form=st.sampled_from([*FIXED, *AUTO]),
    replicas=st.integers(1, 9),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=4),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
    finer=st.booleans(),
)
def test_no_gradient_of_any_size_is_lost(
    form: Format, replicas: int, sizes: list[int], dtype: Any, seed: int, finer: bool
) -> None:
    shapes = [*((size,) for size in sizes), (3, 50), ()]
    group = [make_replica(shapes, dtype, seed + i) for i in range(replicas)]
    expect_nothing_lost(form, group, sums_of(form)[-1 if finer else 0])


@each_auto
def test_two_stages_of_one_replica_send_as_one_stage_does(form: Format) -> None:
    gradients, residuals = make_replica()
    copies = copies_of(residuals)
    one_stage = decode(encode(gradients, copies, form.codec), gradients, form.codec)
    sums = exchange(form, [(gradients, residuals)])
    for total, expected in zip(sums, one_stage, strict=True):
        np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(in_blocks(residuals), in_blocks(copies))


@each_auto
def test_a_sum_may_have_finer_codes(form: Format) -> None:
    """They are those of that codec, and leave less."""
    rows = [encode(*make_replica(seed=seed), form.codec, shards=4, skip=1) for seed in (1, 2)]
    messages = [rows[0][1:2], rows[1][:3]]
    left = []
    for sum_form in sums_of(form):
        gradients, residuals = make_replica()
        before = copies_of(residuals)
        message = reencode(messages, gradients, residuals, 1, 4, form.codec, sum_form.codec)
        assert message.shape == (1, sum_form.words(6))
        own = slice(6 * BLOCK, 12 * BLOCK)
        left.append(np.square(in_blocks(residuals)[own]).sum())
        # The sum, alone in a bucket, as the gradient of one replica.
        total = decode([messages[0], messages[1][1:]], [tf.zeros(6 * BLOCK)], form.codec)[0]
        mine = in_blocks(gradients)[own] + in_blocks(before)[own] + total
        rest = tf.Variable(tf.zeros_like(mine))
        alone = encode([tf.constant(mine)], [rest], sum_form.codec)
        np.testing.assert_array_equal(message, alone)
        np.testing.assert_array_equal(in_blocks(residuals)[own], rest)
    assert left[-1] <= left[0] / (1 if form.codec == "four_bit" else 2)


@cases("finer", True, False)
@cases("bad", -(2.0**120), np.nan, np.inf)
@cases("rank", 1, 0, 2)
@each_auto
def test_what_is_not_finite_arrives_as_nan_and_the_owner_keeps_its_residual(
    form: Format, bad: float, rank: int, finer: bool
) -> None:
    replicas = [make_replica([(1000,)], seed=seed) for seed in range(3)]
    values = replicas[rank][0][0].numpy()
    values[[5, 500, 999]] = bad
    replicas[rank] = ([tf.constant(values)], replicas[rank][1])
    before = [residuals[0].numpy() for _, residuals in replicas]
    sum_form = form.finer if finer else form
    (total,) = exchange(form, replicas, sum_form)
    marked = [np.arange(1000) == where for where in (5, 500, 999)]
    if form.codec == "one_bit":
        # One bit has no code for it, so that all of the block is marked: by who encodes it.
        for owner, where in enumerate((5, 500, 999)):
            if sum_form == form or owner != rank:
                marked[owner] = np.arange(1000) // BLOCK == where // BLOCK
    np.testing.assert_array_equal(np.isnan(total), np.any(marked, axis=0))
    for owner, where in enumerate(marked):
        for replica in {owner, rank}:
            np.testing.assert_array_equal(
                replicas[replica][1][0].numpy()[where], before[replica][where]
            )
    assert all(np.isfinite(residuals[0].numpy()).all() for _, residuals in replicas)


@matrix
@each_auto
def test_many_threads_give_the_bits_of_one(form: Format) -> None:
    gradients, residuals = make_replica([(800_003,)])
    copies = copies_of(residuals)
    own = slice(3126 * BLOCK, None)  # of 6251 blocks
    gradient, before = gradients[0].numpy(), residuals[0].numpy()
    full = encode(gradients, copies, form.codec, shards=2)
    rows = encode(gradients, residuals, form.codec, shards=2, skip=1)
    np.testing.assert_array_equal(rows[0], full[0])
    after = np.concatenate([copies[0].numpy()[: own.start], before[own]])
    np.testing.assert_array_equal(residuals[0], after)

    message = reencode(tf.repeat(full[1:], 2, axis=0), gradients, residuals, 1, 2, codec=form.codec)
    codes, scales, _ = form.parts(full[1], 3126)
    used = codes[: 3125 * form.code_bytes], scales[:3125]
    expected = codec_cases.oracle_reencode(
        form.native, [Message(*used, before[:0])], gradient[own], before[own]
    )
    codes, scales, _ = form.parts(message, 3126)
    np.testing.assert_array_equal(codes[: 3125 * form.code_bytes], expected.codes)
    np.testing.assert_array_equal(scales[:3125], expected.scales)
    after[own] = expected.residual
    np.testing.assert_array_equal(residuals[0], after)


# 4, 8 and 16 bits hold the counts of up to 7, 127 and more replicas.
@cases("replicas", 8, 1, 2, 7, 127, 130)
@each_dtype
@pytest.mark.parametrize("form", [Format("two_bit", 0.3), Format("one_bit", -0.3)], ids=str)
def test_counts_decode_to_the_bits_of_the_messages(form: Format, dtype: Any, replicas: int) -> None:
    shapes = [(3, 50), (0,), (128,), (), (700,)]
    group, whole = [], []
    for seed in range(replicas):
        gradients, residuals = make_replica(shapes, dtype, seed)
        if seed % 5 == 0:
            values = gradients[4].numpy()
            values[130 + seed] = np.nan
            gradients[4] = tf.constant(values)
        whole.append(encode(gradients, copies_of(residuals), form.codec, form.threshold))
        group.append((gradients, residuals))
    expected = decode(whole, group[0][0], form.codec, form.threshold)
    sums = exchange(form, group)
    for total, one in zip(sums, expected, strict=True):
        codec_cases.assert_same_bits(flat(total), flat(one))
    marked = np.isnan(sums[4].numpy().astype(np.float32))
    bad = np.arange(130, 130 + replicas, 5)
    if form.codec == "one_bit":
        blocks = np.arange(700) // BLOCK
        bad = np.flatnonzero(np.isin(blocks, bad // BLOCK))
    np.testing.assert_array_equal(np.flatnonzero(marked), bad)


@each_auto
def test_like_keeps_its_value_if_it_is_still_needed(form: Format) -> None:
    gradients, residuals = make_replica([(1000,)])
    before = gradients[0].numpy().copy()

    @tf.function
    def step(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        doubled = gradient * 2
        message = tf.zeros((1, form.words(8)), tf.int64)
        total = reencode(message, [doubled], residuals, 0, 1, codec=form.codec)
        (total,) = decode_shards(total, [doubled], form.codec, shards=1, replicas=1)
        return doubled, total

    doubled, _ = step(gradients[0])
    np.testing.assert_array_equal(doubled, before * 2)
