"""Hostile messages, shapes, attributes and residuals for the ops of dense gradients.

Each case is a right call in which something may have been changed. It must give a result, or fail
with an error of a caller and leave the residuals as they were; what Pack makes, Unpack has to give
back. Which error, and which result, is tested in tests/ops.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf

Array = npt.NDArray[Any]
Rng = np.random.Generator

# The last ones are TensorFlow's, of a residual that does not exist and of memory that there is not.
REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
    tf.errors.ResourceExhaustedError,
)
THRESHOLDS: dict[str, list[float | None]] = {  # `None` for automatic scales
    "two_bit": [None, 0.5, 2.0**-126],
    "one_bit": [None, 0.0, -1.5],
    "three_bit": [None],
    "four_bit": [None],
    "eight_bit": [None],
}
CODECS = [(codec, value) for codec, values in THRESHOLDS.items() for value in values]
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
HUGE = [2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**59, 2**61 - 1, 2**62, 2**63 - 1]
HEADER_BYTES = 16


class WrongCalls:
    def __init__(self, library: Any, rng: Rng) -> None:
        self.library, self.rng = library, rng
        self.codec, threshold = CODECS[rng.integers(len(CODECS))]
        self.fixed = threshold is not None
        numbers = {"automatic": not self.fixed, "threshold": threshold or 0.0}
        self.format = {"codec": self.codec, **numbers}
        dtype = DTYPES[rng.integers(3)]
        sizes = [int(rng.integers(0, 300)) for _ in range(rng.integers(1, 4))]
        if rng.integers(10) == 0:
            sizes[0] = int(rng.integers(30_000, 400_000))  # which several threads share
        self.gradients = [self._values(size, dtype) for size in sizes]
        self.residuals = [tf.Variable(self._values(size, np.float32)) for size in sizes]

    def call(self) -> str:
        """Makes a call and returns how it ended: the op, and "right" or "refused"."""
        makes: list[Callable[[], tuple[str, dict[str, Any]]]] = [
            *(self.encode, self.decode, self.count, self.reencode, self.decode_shards, self.pack),
            self.unpack,
        ]
        op, arguments = makes[self.rng.integers(len(makes))]()
        before = [residual.numpy() for residual in self.residuals]
        try:
            result = getattr(self.library, f"tf_gc_{op}")(**arguments)
        except REFUSALS:
            for residual, values in zip(self.residuals, before, strict=True):
                assert residual.numpy().tobytes() == values.tobytes()
            return f"{op}: refused"
        if op == "pack":
            (compact, lengths), messages = result, np.asarray(arguments["messages"])
            sent = compact[:, : int(tf.reduce_max(lengths))] if len(lengths) else compact
            unpack = self.library.tf_gc_unpack
            whole = unpack(compact=sent, words=messages.shape[1], **self.format)
            assert whole.numpy().tobytes() == messages.tobytes()
        return f"{op}: right"

    def encode(self) -> tuple[str, dict[str, Any]]:
        shards = int(self.rng.integers(1, 5))
        skip = -1 if self.fixed else int(self.rng.integers(-1, shards))
        return "encode", {**self._bucket(), **self._hostile(shards=shards, skip=skip)}

    def decode(self) -> tuple[str, dict[str, Any]]:
        messages = self._changed(self._rows(1, int(self.rng.integers(1, 5))))
        return "decode", {"messages": messages, "like": self.gradients, **self._hostile()}

    def count(self) -> tuple[str, dict[str, Any]]:
        replicas = int(self.rng.choice([1, 2, 7, 8, 9]))
        arguments = self._hostile(replicas=replicas)
        del arguments["automatic"]
        return "count", {"messages": self._changed(self._rows(1, replicas)), **arguments}

    def reencode(self) -> tuple[str, dict[str, Any]]:
        shards = int(self.rng.integers(1, 5))
        finer = "three_bit" if self.codec in ("one_bit", "two_bit") else "four_bit"
        arguments = self._hostile(
            shard=int(self.rng.integers(shards)),
            shards=shards,
            sum_codec=[self.codec, finer][self.rng.integers(2)],
        )
        del arguments["automatic"], arguments["threshold"]
        messages = self._changed(self._rows(shards, shards))
        return "reencode", {"messages": messages, **self._bucket(), **arguments}

    def decode_shards(self) -> tuple[str, dict[str, Any]]:
        shards, replicas = int(self.rng.integers(1, 5)), int(self.rng.choice([1, 7, 8, 127, 128]))
        rows = self._rows(shards, shards)
        if self.fixed:
            numbers = {"codec": self.codec, "threshold": self.format["threshold"]}
            sent = [[row[None]] * replicas for row in rows]
            count = self.library.tf_gc_count
            counts = [count(messages=each, replicas=replicas, **numbers) for each in sent]
            rows = self._with_any_body(np.concatenate(counts))
        arguments = self._hostile(shards=shards, replicas=replicas)
        messages = self._changed(rows)
        return "decode_shards", {"messages": messages, "like": self.gradients, **arguments}

    def pack(self) -> tuple[str, dict[str, Any]]:
        periods = self.rng.integers(1, 4097, self.rng.integers(5)).tolist()
        messages = self._changed(self._rows(1, int(self.rng.integers(1, 4))))[0]
        return "pack", {"messages": messages, **self._hostile(periods=periods)}

    def unpack(self) -> tuple[str, dict[str, Any]]:
        rows = self._rows(1, int(self.rng.integers(1, 4)))
        words = rows.shape[1]
        compact = rows  # of one bit, which is never packed
        if self.codec != "one_bit":
            compact = self.library.tf_gc_pack(messages=rows, periods=[], **self.format)[0].numpy()
        if self.rng.integers(2) and compact.size:
            compact = compact.copy()
            row = compact[self.rng.integers(len(compact))].view(np.uint8)
            row[self.rng.integers(row.size, size=3)] = self.rng.integers(256, size=3)
        if self.rng.integers(4) == 0:
            words = int(self.rng.choice([*HUGE, -1, 0, words + 2, words + 6, words - 2]))
        arguments = {"words": np.int64(words), **self._hostile()}
        return "unpack", {"compact": self._changed(compact)[0], **arguments}

    def _values(self, size: int, dtype: npt.DTypeLike) -> Array:
        values = self.rng.standard_normal(size).astype(np.float32)
        special = [np.nan, np.inf, -np.inf, 1e38, 0][self.rng.integers(5)]
        values[self.rng.random(size) < 0.01] = special
        with np.errstate(over="ignore"):
            return values.astype(dtype)

    def _rows(self, shards: int, rows: int) -> Array:
        """Messages of the bucket's shards, any of them repeated."""
        residuals = [tf.Variable(residual).handle for residual in self.residuals]
        made = self.library.tf_gc_encode(
            gradients=self.gradients, residuals=residuals, shards=shards, skip=-1, **self.format
        )
        return self._with_any_body(np.resize(made, (rows, made.shape[1])))

    def _with_any_body(self, rows: Array) -> Array:
        data = rows.copy().view(np.uint8)
        if self.rng.integers(2):
            body = data[:, HEADER_BYTES:]
            body[:] = self.rng.integers(0, 256, body.shape)
        return data.view(np.int64)

    def _bucket(self) -> dict[str, Any]:
        """Gradients, and the handles of residuals: none, or one may be missing or not fit."""
        handles = [residual.handle for residual in self.residuals]
        i, what = int(self.rng.integers(len(handles))), self.rng.integers(25)
        size = self.gradients[i].size
        if what == 0:
            handles[i] = handles[i - 1]
        elif what == 1:
            handles[i] = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
        elif what == 2:
            handles[i] = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[size])
        elif what in (3, 4):
            value = tf.zeros(size + 1) if what == 3 else tf.zeros(size, tf.float64)
            self.other = tf.Variable(value)
            handles[i] = self.other.handle
        elif what in (5, 6):
            handles = handles[: [0, -1][what - 5]]
        return {"gradients": self.gradients, "residuals": handles}

    def _hostile(self, **numbers: Any) -> dict[str, Any]:
        """Attributes, one of which may have a value that it must not have."""
        attributes = {**self.format, **numbers}
        if self.rng.integers(5):
            return attributes
        wrong: dict[str, list[Any]] = {
            "codec": ["", "five_bit", "TWO_BIT", "two_bit\0", "one_bit", "four_bit"],
            "automatic": [self.fixed],
            "threshold": [float("nan"), float("inf"), 2.0**120, 3e38, -(2.0**120)],
            "sum_codec": ["", "five_bit", "one_bi"],
            "shards": [0, -1, -(2**63), 2**48, 2**59, 2**63 - 1],
            "replicas": [0, -1, -(2**63), *HUGE],
            "shard": [-1, numbers.get("shards", 0), 2**62],
            "periods": [[0], [3, -1], [4097], [2**62], [1, 2, 3, 4, 5]],
            "skip": [-2, numbers.get("shards", 0), 2**62],
        }
        name = list(attributes)[self.rng.integers(len(attributes))]
        values = wrong[name]
        return {**attributes, name: values[self.rng.integers(len(values))]}

    def _changed(self, rows: Array) -> list[Any]:
        """Messages as a list of tensors, with one thing changed or nothing."""
        at = int(self.rng.integers(len(rows) + 1))
        tensors: list[Any] = [part.copy() for part in (rows[:at], rows[at:]) if len(part)]
        i = int(self.rng.integers(len(tensors)))
        tensor = tensors[i]
        count, words = tensor.shape
        what = self.rng.integers(16)  # from 9 on: nothing
        if what < 3:
            row = tensor[self.rng.integers(count)].view(np.uint8)
            end = self.rng.choice([HEADER_BYTES, row.size])
            row[self.rng.integers(end)] ^= 1 << self.rng.integers(8)
        elif what == 3:
            tensors[i] = tensor[:, : self.rng.integers(words)]
        elif what == 4:
            tensors[i] = np.pad(tensor, [(0, 0), (0, self.rng.integers(1, 40))])
        elif what == 5:
            tensors[i] = tensor[self.rng.integers(count + 1) :]
        elif what == 6:
            tensors.append(tensor[: self.rng.integers(count + 1)])
        elif what == 7:
            shapes = [(count * words,), (count, words, 1), (1, count, words), (words, count)]
            tensors[i] = tensor.reshape(shapes[self.rng.integers(len(shapes))])
        elif what == 8:
            huge = HUGE[self.rng.integers(len(HUGE))] - int(self.rng.integers(2)) * 2
            shape = [(0, huge), (0, 0), (count, 0)][self.rng.integers(3)]
            tensors[i] = tf.fill(tf.constant(shape, tf.int64), tf.constant(0, tf.int64))
        return tensors
