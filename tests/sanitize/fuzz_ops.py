"""Hostile messages, shapes, attributes and residuals for the ops of dense gradients, for a time.

    python -m tests.sanitize.fuzz_ops LIBRARY SECONDS [SEED]

Each case is a call that is right but for what was changed in it. A model says what is wrong with
it then: nothing, and the result must be that of the NumPy oracles, to the bit; or something, and
the op must fail with an InvalidArgumentError that names it, and leave the residuals as they were.
What Pack makes, Unpack has to give back. Of changed compact messages no model knows which are still
some message: an error or any result will do.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tests.oracles import one_bit as oracle_one_bit
from tests.oracles import two_bit as oracle
from tests.sanitize.bucket_model import DTYPES, Bucket, same_bits
from tests.sanitize.case import Case, hostile
from tests.sanitize.compact_cases import pack_case, unpack_case
from tests.sanitize.wire_model import (
    FAMILIES,
    HEADER,
    HUGE,
    ROWS,
    SHAPE,
    Array,
    Family,
    Rng,
    bucket_of,
    change_messages,
    problems_of,
    split,
)

# The last two are TensorFlow's, of a residual that does not exist.
REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)


def decode_case(family: Family, rng: Rng) -> Case:
    sizes, blocks = bucket_of(rng)
    dtype = DTYPES[rng.integers(3)]
    message = family.format()
    rows = [message.row(blocks, rng) for _ in range(rng.integers(1, 5))]
    tensors = change_messages(split(rows, rng), rng)
    attributes, wrong = hostile(family.attributes(), rng)

    def check(sums: Any) -> None:
        parts = [message.parts(row, blocks) for tensor in tensors for row in tensor]
        check_sums(family, parts, sizes, dtype, sums)

    inputs = {"messages": tensors, "like": [np.zeros(size, dtype) for size in sizes]}
    problems = problems_of(tensors, message, blocks, None)
    return Case("decode", {**inputs, **attributes}, wrong + problems, check)


def check_sums(
    family: Family,
    parts: list[tuple[Array, Array]],
    sizes: list[int],
    dtype: npt.DTypeLike,
    sums: Any,
) -> None:
    """Compares the sums of a bucket with those of its tensors' parts of the messages."""
    first = 0
    code_bytes = family.format().bits * 16
    for size, total in zip(sizes, sums, strict=True):
        last = first + oracle.num_blocks(size)
        mine = [(c[first * code_bytes : last * code_bytes], s[first:last]) for c, s in parts]
        same_bits(total, family.sum(mine, size, dtype))
        first = last


def count_case(family: Family, rng: Rng) -> Case:
    if family.threshold is None:  # which has no counts
        family = Family("one_bit" if family.name == "one_bit" else "two_bit", 0.5)
    blocks = int(rng.integers(0, 5))
    replicas = int(rng.choice([1, 2, 7, 8, 9]))
    message = family.format()
    rows = [message.row(blocks, rng) for _ in range(replicas)]
    tensors = change_messages(split(rows, rng), rng)
    attributes = {**family.attributes(), "replicas": replicas}
    del attributes["automatic"]
    attributes, wrong = hostile(attributes, rng)
    shape = tensors[0].shape
    blocks = next((n for n in range(40) if shape[1:] == (message.words(n),)), -1)
    if blocks >= 0:
        problems = problems_of(tensors, message, blocks, replicas)
    else:  # a tensor without rows may be as wide as a message of very many blocks
        problems = [SHAPE, ROWS] if 0 in shape else [SHAPE]

    def check(result: Any) -> None:
        counts = family.counts(replicas)
        parts = [message.parts(row, blocks) for tensor in tensors for row in tensor]
        codes, scales = [part[0] for part in parts], [part[1] for part in parts]
        body = (
            oracle_one_bit.count(codes, scales, counts.bits)
            if family.name == "one_bit"
            else oracle.count_fixed(codes, counts.bits)
        )
        expected = np.zeros(counts.words(blocks) * 8, np.uint8)
        expected[: HEADER.size] = np.frombuffer(HEADER.pack(*counts.header(blocks)), np.uint8)
        expected[HEADER.size : HEADER.size + body.size] = body
        same_bits(result, expected.view(np.int64)[None])

    return Case("count", {"messages": tensors, **attributes}, wrong + problems, check)


def decode_shards_case(family: Family, rng: Rng) -> Case:
    sizes, blocks = bucket_of(rng)
    dtype = DTYPES[rng.integers(3)]
    shards = int(rng.integers(1, 5))
    replicas = int(rng.choice([1, 7, 8, 127, 128, 32767]))
    fixed = family.threshold is not None
    message = family.counts(replicas) if fixed else family.format()
    shard_blocks = -(-blocks // shards)
    rows = [message.row(shard_blocks, rng) for _ in range(shards)]
    tensors = change_messages(split(rows, rng), rng)
    numbers = {"shards": shards, "replicas": replicas}
    attributes, wrong = hostile({**family.attributes(), **numbers}, rng)
    if rng.integers(8) == 0:  # more shards than there are rows
        attributes["shards"] = HUGE[rng.integers(len(HUGE))]
        wrong += [SHAPE, ROWS, "a message has"]

    def check(sums: Any) -> None:
        all_parts = [message.parts(row, shard_blocks) for tensor in tensors for row in tensor]
        parts = tuple(np.concatenate(part) for part in zip(*all_parts, strict=True))
        if not fixed:
            return check_sums(family, [parts], sizes, dtype, sums)
        codes = parts[0]
        first = 0
        for size, total in zip(sizes, sums, strict=True):
            mine = codes[first * 16 * message.bits :]
            expected = oracle.decode_counts(mine, message.bits, size, message.unit, dtype)
            same_bits(total, expected)
            first += oracle.num_blocks(size)

    inputs = {"messages": tensors, "like": [np.zeros(size, dtype) for size in sizes]}
    problems = problems_of(tensors, message, shard_blocks, shards)
    return Case("decode_shards", {**inputs, **attributes}, wrong + problems, check)


def encode_case(family: Family, rng: Rng) -> Case:
    bucket = Bucket.random(rng)
    shards = int(rng.integers(1, 5))
    skip = int(rng.integers(-1, shards)) if family.threshold is None else -1
    numbers = {"shards": shards, "skip": skip}
    attributes, wrong = hostile({**family.attributes(), **numbers}, rng)
    arguments = bucket.arguments()
    any_error = False
    if family.threshold is not None and rng.integers(8) == 0:
        attributes["skip"] = 0
        wrong.append("skip")
    if rng.integers(8) == 0:  # messages that fit into no memory, or no number
        attributes["shards"] = int(rng.choice([2**48, 2**59, 2**60, 2**63 - 1]))
        any_error = True
    if rng.integers(5) == 0:
        arguments["residuals"], problem = bad_residuals(bucket, rng)
        wrong.append(problem)

    def check(rows: Any) -> None:
        after = [residual.copy() for residual in bucket.before]
        shard_blocks = -(-bucket.blocks() // shards)
        for shard, row in enumerate(np.asarray(rows)):
            unchanged = [residual.copy() for residual in after]
            expected = bucket.encode(family, shard, shard_blocks, after)
            if shard == skip:
                after = unchanged
                expected[2:] = 0
            same_bits(row, expected)
        bucket.check(after)

    return Case("encode", {**arguments, **attributes}, wrong, check, bucket, any_error)


def bad_residuals(bucket: Bucket, rng: Rng) -> tuple[list[tf.Tensor], str]:
    """Handles of which one does not fit its gradient, and what the error says of it."""
    handles = [residual.handle for residual in bucket.residuals]
    i = int(rng.integers(len(handles)))
    size = bucket.sizes[i]
    what = rng.integers(5)
    if what == 0 and len(handles) > 1:
        handles[i] = handles[i - 1]
        return handles, f"occurs twice|residual {i}"
    if what == 1:
        handles[i] = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
        return handles, "Trying to access a handle"
    if what == 2:
        handles[i] = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[size])
        return handles, "does not exist|uninitialized|initialized"
    wrong = tf.Variable(tf.zeros(size + 1) if what == 3 else tf.zeros(size, tf.float64))
    bucket.others.append(wrong)
    handles[i] = wrong.handle
    return handles, f"residual {i} must be"


def reencode_case(family: Family, rng: Rng) -> Case:
    family = dataclasses.replace(family, threshold=None)
    bucket = Bucket.random(rng)
    shards = int(rng.integers(1, 5))
    shard = int(rng.integers(shards))
    shard_blocks = -(-bucket.blocks() // shards)
    message = family.format()
    rows = [message.row(shard_blocks, rng) for _ in range(shards)]
    tensors = change_messages(split(rows, rng), rng)
    sum_family = family
    if rng.integers(2):
        few = family.name in ("one_bit", "two_bit")
        sum_family = Family("three_bit" if few else "four_bit", None)
    codecs = {"codec": family.name, "sum_codec": sum_family.name}
    attributes, wrong = hostile({**codecs, "shard": shard, "shards": shards}, rng)
    if rng.integers(8) == 0:
        attributes["shards"] = HUGE[rng.integers(len(HUGE))]
        wrong += [SHAPE, ROWS, "a message has"]
    arguments = bucket.arguments()
    if rng.integers(5) == 0:
        arguments["residuals"], problem = bad_residuals(bucket, rng)
        wrong.append(problem)

    def check(row: Any) -> None:
        after = [residual.copy() for residual in bucket.before]
        received = [row for tensor in tensors for row in tensor]
        del received[shard]
        parts = [message.parts(other, shard_blocks) for other in received]
        expected = bucket.encode(sum_family, shard, shard_blocks, after, parts, family)
        same_bits(row[0], expected)
        bucket.check(after)

    problems = problems_of(tensors, message, shard_blocks, shards, unread=shard)
    inputs = {"messages": tensors, **arguments, **attributes}
    return Case("reencode", inputs, wrong + problems, check, bucket)


CASES = [
    pack_case,
    unpack_case,
    decode_case,
    decode_shards_case,
    count_case,
    reencode_case,
    encode_case,
]


def run(library: Any, case: Case) -> str:
    """Runs a case and returns how it ended: "right" or "refused"."""
    result, refusal = None, None
    try:
        result = getattr(library, f"tf_gc_{case.op}")(**case.inputs)
    except tf.errors.OpError as error:
        refusal = error
    if case.either and refusal is not None:
        return "refused"
    if refusal is None:
        assert not case.problems, f"not refused: {case.problems}"
        assert not case.any_error, "not refused"
        case.check(result)
        return "right"
    if not case.any_error:
        assert isinstance(refusal, REFUSALS), refusal
        assert re.search("|".join(case.problems) or "$^", str(refusal)), (case.problems, refusal)
    if case.bucket is not None:
        case.bucket.check(case.bucket.before)
    return "refused"


def main(path: str, seconds: float, seed: int) -> None:
    library = tf.load_op_library(path)
    ends: collections.Counter[tuple[str, str]] = collections.Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rng = np.random.default_rng(seed)
        family = FAMILIES[rng.integers(len(FAMILIES))]
        case = CASES[rng.integers(len(CASES))](family, rng)
        try:
            ends[case.op, run(library, case)] += 1
        except BaseException:
            print(f"seed {seed}: {family}: {case}", file=sys.stderr)
            raise
        seed += 1
    for (op, result), count in sorted(ends.items()):
        print(f"{op}: {count} {result}")
    assert len(ends) == 2 * len(CASES), "a kind of case did not occur"


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
