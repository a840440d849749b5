"""The ops of the scatter-gather through TensorFlow: shards, ledger, buffers.

tests/custom_ops/test_shards.py tests what each codec makes of a shard.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import cases
from tests.ops.formats import (
    AUTO,
    BLOCK,
    DTYPES,
    FIXED,
    FOUR_BIT,
    ONE_BIT,
    SHAPES,
    THREE_BIT,
    TWO_BIT,
    Format,
    Replica,
    copies_of,
    each_dtype,
    each_format,
    in_blocks,
    make_replica,
)
from tf_gc.ops import count, decode, decode_shards, encode, reencode

MANY = [(800_003,)]  # which several threads share


def exchange(
    form: Format, replicas: list[Replica], sum_form: Format | None = None
) -> list[tf.Tensor]:
    """Runs both stages and returns the sums."""
    n, of_sums = len(replicas), sum_form or form
    rows = [
        encode(*replica, form.codec, form.threshold, n, rank if form.automatic else None)
        for rank, replica in enumerate(replicas)
    ]
    totals = [
        reencode(column, *replicas[rank], rank, n, form.codec, of_sums.codec)
        if form.automatic
        else count(column, n, form.codec, form.threshold)
        for rank, column in enumerate(tf.unstack(tf.stack(rows, axis=1)))
    ]
    like = replicas[0][0]
    return decode_shards(totals, like, of_sums.codec, form.threshold, shards=n, replicas=n)


# ---- Encoding in shards ------------------------------------------------------------


@cases("shards, shapes", (3, SHAPES), (1, SHAPES), (22, SHAPES), (50, SHAPES), (2, MANY))
@each_format
def test_the_shards_are_the_blocks_of_the_bucket_in_order(
    form: Format, shards: int, shapes: list[tuple[int, ...]]
) -> None:
    gradients, residuals = make_replica(shapes)
    copies = copies_of(residuals)
    whole = encode(gradients, residuals, form.codec, form.threshold)
    rows = encode(gradients, copies, form.codec, form.threshold, shards).numpy()
    np.testing.assert_array_equal(in_blocks(residuals), in_blocks(copies))
    blocks = in_blocks(residuals).size // BLOCK
    size = -(-blocks // shards)
    assert rows.shape == (shards, form.words(size))
    assert (rows[:, 1] == size).all()
    np.testing.assert_array_equal(rows[:, 0], whole.numpy()[:, 0].repeat(shards))
    codes, scales, paddings = zip(*[form.parts(row, size) for row in rows], strict=True)
    all_codes, all_scales, _ = form.parts(whole, blocks)
    for found, expected in ((codes, all_codes), (scales, all_scales)):
        joined = np.concatenate(found)
        np.testing.assert_array_equal(joined[: expected.size], expected)
        assert not joined[expected.size :].any()
    assert not np.concatenate(paddings).any()


@cases("skip, shapes", (1, SHAPES), (0, SHAPES), (7, SHAPES), (5, MANY))
def test_a_skipped_shard_sends_zeros_and_keeps_its_residuals(
    skip: int, shapes: list[tuple[int, ...]]
) -> None:
    gradients, residuals = make_replica(shapes)
    copies = copies_of(residuals)
    before = in_blocks(residuals)
    full = encode(gradients, copies, "three_bit", shards=8).numpy()
    rows = encode(gradients, residuals, "three_bit", shards=8, skip=skip).numpy()
    assert not rows[skip, 2:].any()
    rows[skip, 2:] = full[skip, 2:]
    np.testing.assert_array_equal(rows, full)
    size = -(-before.size // (8 * BLOCK)) * BLOCK
    own = slice(skip * size, (skip + 1) * size)
    expected = in_blocks(copies)
    expected[own] = before[own]
    np.testing.assert_array_equal(in_blocks(residuals), expected)


@each_format
def test_a_bucket_of_empty_tensors_has_empty_shards(form: Format) -> None:
    replicas = [make_replica([(0,), (0, 3)], seed=seed) for seed in range(2)]
    rows = encode(*replicas[0], form.codec, form.threshold, shards=2)
    assert rows.shape == (2, 2)
    assert [total.shape for total in exchange(form, replicas)] == [(0,), (0, 3)]


def test_residuals_that_are_being_read_keep_what_is_not_encoded() -> None:
    """The encode writes new buffers then, into which the other residuals have to come."""
    codec = "three_bit"
    gradients, residuals = make_replica()
    copies = copies_of(residuals)
    message = encode(gradients, copies, codec, shards=4, skip=2)

    @tf.function
    def step() -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        first = [residual.read_value() for residual in residuals]
        rows = encode(gradients, residuals, codec, shards=4, skip=2)
        with tf.control_dependencies([rows]):
            second = [residual.read_value() for residual in residuals]
        with tf.control_dependencies(second):
            total = reencode([rows[:1]] * 4, gradients, residuals, 2, 4, codec=codec)
        with tf.control_dependencies([total]):
            old = [tf.identity(value) for value in first], [tf.identity(v) for v in second]
            return *old, [residual.read_value() for residual in residuals], total

    before = in_blocks(residuals)
    first, second, third, total = step()
    np.testing.assert_array_equal(in_blocks(first), before)
    np.testing.assert_array_equal(in_blocks(second), in_blocks(copies))
    expected = reencode([message[:1]] * 4, gradients, copies, 2, 4, codec=codec)
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(in_blocks(third), in_blocks(copies))
    assert (in_blocks(third) != in_blocks(second)).any()


# ---- Both stages -------------------------------------------------------------------


@each_dtype
@cases(
    "form, sum_form, shard",
    (THREE_BIT, FOUR_BIT, 1),
    *((THREE_BIT, THREE_BIT, 0), (TWO_BIT, THREE_BIT, 3), (FOUR_BIT, FOUR_BIT, 2)),
    (ONE_BIT, ONE_BIT, 1),
)
def test_reencode_encodes_its_shard_of_all_sums(
    form: Format, sum_form: Format, shard: int, dtype: Any
) -> None:
    """Its message is the one that a replica with the sum as its gradient sends."""
    shards, size = 4, 6
    replicas = [make_replica(dtype=dtype, seed=seed) for seed in range(shards)]
    rows = [encode(*each, form.codec, shards=shards)[shard : shard + 1] for each in replicas]
    others = [row for rank, row in enumerate(rows) if rank != shard]
    rows[shard] = tf.constant(-1, tf.int64, rows[shard].shape)  # not even a header
    gradients, residuals = make_replica(dtype=dtype, seed=9)
    before = in_blocks(residuals)
    together = [tf.concat(rows[:3], axis=0), rows[3]]
    codecs = form.codec, sum_form.codec
    message = reencode(together, gradients, residuals, shard, shards, *codecs)

    own = slice(shard * size * BLOCK, (shard + 1) * size * BLOCK)
    p = in_blocks(gradients)[own].astype(np.float32) + before[own]
    (received,) = decode(others, [tf.zeros(size * BLOCK)], form.codec)
    p += received.numpy()[: p.size]
    rest = tf.Variable(tf.zeros(size * BLOCK))
    alone = encode([np.pad(p, [(0, size * BLOCK - p.size)])], [rest], sum_form.codec)
    np.testing.assert_array_equal(message, alone)
    before[own] = rest.numpy()[: p.size]
    np.testing.assert_array_equal(in_blocks(residuals), before)


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
    """The sums, plus all residuals, are all gradients plus the residuals before."""
    shapes = [*((size,) for size in sizes), (3, 50), ()]
    group = [make_replica(shapes, dtype, seed + i) for i in range(replicas)]
    expected = [
        sum(g[i].numpy().astype(np.float64) + r[i].numpy() for g, r in group)
        for i in range(len(shapes))
    ]
    sums = exchange(form, group, form.finer if finer and form.automatic else form)
    for i, total in enumerate(sums):
        assert total.dtype == group[0][0][i].dtype
        kept = sum(residuals[i].numpy().astype(np.float64) for _, residuals in group)
        # Results of 16 bits round the sum itself.
        atol = 1e-4 if total.dtype == tf.float32 else 8e-2
        np.testing.assert_allclose(total.numpy().astype(np.float64) + kept, expected[i], atol=atol)
